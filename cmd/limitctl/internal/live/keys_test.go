package live

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

func TestMatching(t *testing.T) {
	l := open(t, redistest.Real(t), Options{}, Policy{Name: "p", Rules: rulesOf("ip: 1/1h per ip; user: 1/1h per user")})
	for names, problem := range map[[2]string]string{
		{"q", "user"}: `no policy "q" with a rule "user": `, {"p", "users"}: `no policy "p" with a rule "users": `,
		{"q", ""}: `no policy "q": `, {"", "users"}: `no rule "users": `,
	} {
		_, err := l.Matching(names[0], names[1])
		assert.ErrorContains(t, err, problem+`write one of --policy "p" --rule ip, `)
	}
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
	must.Get(json.Marshal(a))(t)
}
