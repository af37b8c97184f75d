package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/policyfile"
)

// TestRedisControl examines a server with bans, overrides and a pushed policy: they are
// named, are no quotas, and nothing says to delete them.
func TestRedisControl(t *testing.T) {
	client := redistest.Real(t)
	ctx := t.Context()
	found := see(t, RedisOptions{URL: addr(client)})
	assert.NotContains(t, found, "control-permissions")
	require.NoError(t, client.Set(ctx, "limit:control:{limit}:feed:watched", 1, time.Minute).Err()) // of package feed
	assert.NotContains(t, see(t, RedisOptions{URL: addr(client)}), "control-permissions")
	require.NoError(t, client.Del(ctx, "limit:control:{limit}:feed:watched").Err())
	found = see(t, RedisOptions{URL: addr(client), Control: true})
	assert.Equal(t, OK, found["control-permissions"].Verdict)
	assert.Zero(t, client.DBSize(ctx).Val(), "it writes nothing")

	spend(t, client)
	quotas := see(t, RedisOptions{URL: addr(client)})["keys-ttl"].Found
	c := control.New(client, nil)
	require.NoError(t, c.Put(ctx, "bans", "203.0.113.9", []byte("{}"), time.Hour, "ann"))
	require.NoError(t, c.Put(ctx, "bans", "203.0.113.10", []byte("{}"), 0, "ann"))
	require.NoError(t, c.Put(ctx, "overrides", `"api" "r" "k"`, []byte(`{"limit":1}`), 0, "ann"))
	f, err := policyfile.Parse("p.yaml", []byte("version: 1\npolicies:\n  a: {rules: 5/1m per ip}\n"))
	require.NoError(t, err)
	require.NoError(t, policyfile.Push(ctx, c, "", f, 0, "ann"))
	require.NoError(t, client.Set(ctx, "limit:control:{limit}:bans:later", "x", 0).Err())
	for _, keys := range []int{1000, 1} {
		found = see(t, RedisOptions{URL: addr(client), Keys: keys})
		assert.Equal(t, OK, found["control-permissions"].Verdict)
		for _, check := range []string{"keys", "keys-ttl", "keys-type", "keys-form", "keys-version"} {
			assert.Equal(t, OK, found[check].Verdict, found[check].Found)
			assert.NotContains(t, found[check].Found, "control")
		}
	}
	found = see(t, RedisOptions{URL: addr(client)})
	assert.Equal(t, quotas, found["keys-ttl"].Found)

	// A user who may decide, and neither scan nor ban.
	words := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~limit:*"}
	for _, command := range redisfacts.Needed {
		words = append(words, "+"+strings.ToLower(command))
	}
	require.NoError(t, client.Do(ctx, words...).Err())
	url := "redis://app:secret@" + addr(client)
	found = see(t, RedisOptions{URL: url})
	assert.Equal(t, Fail, found["control-permissions"].Verdict, "EXISTS shows that there are bans")
	found = see(t, RedisOptions{URL: url, Control: true})
	rights := found["control-permissions"]
	assert.Equal(t, Fail, rights.Verdict)
	for _, command := range redisfacts.NeededByControl[5:] {
		assert.Contains(t, rights.Found, command+" (")
	}
	// What it says to do helps.
	fix := strings.Fields(strings.ReplaceAll(rights.Fix[0], "'", ""))
	for i, word := range fix {
		if word == "ACL" {
			words = nil
			for _, word := range fix[i:] {
				words = append(words, strings.Replace(word, "<user>", "app", 1))
			}
		}
	}
	require.NoError(t, client.Do(ctx, words...).Err())
	found = see(t, RedisOptions{URL: url})
	assert.Equal(t, OK, found["control-permissions"].Verdict, found["control-permissions"].Found)
	assert.Equal(t, Skipped, found["keys"].Verdict)
}
