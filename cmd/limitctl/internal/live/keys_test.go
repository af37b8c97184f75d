package live

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
)

func TestKeys(t *testing.T) {
	l := open(t, redistest.Real(t), Options{}, Policy{Name: "p", Rules: rulesOf("ip: 1/1h per ip; user: 1/1h per user; either: 1/1h per user or ip; " +
		"both: 1/1h per ip and user; all: 1/1h global; nested: 1/1h per user or (ip and user)")})
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		rule, text string
		keys       []string
		one        string
	}{
		{"ip", "192.0.2.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"ip", "2001:db8:1:2:3::4", []string{"2001:db8:1:2::/64", "2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"},
		{"ip", "2001:db8:1:2::/64", []string{"2001:db8:1:2::/64"}, "2001:db8:1:2::/64"},
		{"ip", "::ffff:192.0.2.1", []string{"192.0.2.1", "::ffff:192.0.2.1"}, "192.0.2.1"},
		{"ip", "alice", []string{"alice"}, "error"},
		{"ip", "10.0.0.0/8", []string{"10.0.0.0/8"}, "error"},
		{"user", "alice", []string{"alice"}, "alice"},
		{"user", "", []string{""}, ""},
		{"either", "alice", []string{"0=alice", "alice"}, "0=alice"},
		{"either", "192.0.2.1", []string{"0=192.0.2.1", "1=192.0.2.1", "192.0.2.1"}, "error"},
		{"either", "1=192.0.2.1", []string{"0=1=192.0.2.1", "1=192.0.2.1"}, "1=192.0.2.1"},
		{"either", "7=x", []string{"0=7=x", "7=x"}, "0=7=x"},
		{"both", "alice", []string{"alice"}, "error"},
		{"both", "9:192.0.2.15:alice", []string{"9:192.0.2.15:alice"}, "9:192.0.2.15:alice"},
		{"both", "9:192.0.2.15:alic", []string{"9:192.0.2.15:alic"}, "error"},
		{"both", "9:192.0.2.15:alice1", []string{"9:192.0.2.15:alice1"}, "error"},
		{"both", "9:192.0.2.1", []string{"9:192.0.2.1"}, "error"},
		{"nested", "alice", []string{"0=alice", "alice"}, "0=alice"},
		{"all", "", []string{""}, ""},
		{"all", "alice", nil, "error"},
	} {
		found, err := l.Matching("p", c.rule)
		require.NoError(t, err)
		r := found[0]
		assert.Equal(t, c.keys, l.Keys(r, c.text), "%s %s", c.rule, c.text)
		one, err := l.Key(r, c.text)
		if c.one == "error" {
			assert.Error(t, err, "%s %s", c.rule, c.text)
			continue
		}
		assert.NoError(t, err)
		assert.Equal(t, c.one, one, "%s %s", c.rule, c.text)
	}
	users, err := l.Matching("p", "user")
	require.NoError(t, err)
	hash, err := l.Key(users[0], long)
	require.NoError(t, err)
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, hash)
	again, err := l.Key(users[0], hash)
	require.NoError(t, err)
	assert.Equal(t, hash, again, "as it is shown")
	for names, problem := range map[[2]string]string{
		{"q", "user"}: `no policy "q" with a rule "user": `, {"p", "users"}: `no policy "p" with a rule "users": `,
		{"q", ""}: `no policy "q": `, {"", "users"}: `no rule "users": `,
	} {
		_, err := l.Matching(names[0], names[1])
		assert.ErrorContains(t, err, problem+`write one of --policy "p" --rule ip, `)
	}
	assert.True(t, l.Rules()[3].Composite() && l.Rules()[5].Composite() && !l.Rules()[2].Composite() && l.Rules()[4].Shared())
}

// TestHostileNames checks keys of Redis that no program made, and keys with any bytes.
func TestHostileNames(t *testing.T) {
	client := redistest.Real(t)
	evil := "\x1b[2J\u202e}:{\xff\x00 % \n*"
	use(t, client, nil, "a", "r: 1/1h per user", 1, limit.Request{Keys: map[string]string{"user": evil}})
	for _, name := range []string{"limit:", "limit:1:", "limit:1:{a}:r", "limit:1:{a}:r~:x", "limit:1:{a}:r~pro~x:x", "limit:1:{a:b}:r:x", "limit:1:{}:r:x",
		"limit:1:returned:{a}:r:x", "limit:1:{a}:%:x", "limit:control:{limit}:bans:version", "limit:99999999999999999999:{a}:r:x"} {
		require.NoError(t, client.Set(t.Context(), name, "\xff", 0).Err())
	}
	require.NoError(t, client.LPush(t.Context(), "limit:1:{b}:r:list", "x").Err())
	l := open(t, client, Options{}, Policy{Name: "a", Rules: rulesOf("r: 1/1h per user")})
	a := ask(t, l, client, Question{})
	assert.Equal(t, []string{"a r " + strings.TrimSpace(evil)}, keysOf(a))
	assert.Equal(t, []any{12, 1, 3}, []any{a.Looked, a.Known, len(a.Unknown)}, "%+v", a)
	_, err := json.Marshal(a)
	require.NoError(t, err)
}
