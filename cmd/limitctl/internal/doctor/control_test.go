package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/policyfile"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestRedisControl examines a server with bans, overrides, a pushed policy and the list of the
// processes that share it: they are no quotas, and nothing says to delete them.
func TestRedisControl(t *testing.T) {
	client := redistest.Real(t)
	ctx := t.Context()
	spend(t, client)
	quotas := see(t, RedisOptions{Address: location{URL: addr(client)}})["keys-ttl"].Found
	c := control.New(client, nil)
	require.NoError(t, c.Put(ctx, "bans", "203.0.113.9", []byte("{}"), time.Hour, "ann"))
	require.NoError(t, c.Put(ctx, "bans", "203.0.113.10", []byte("{}"), 0, "ann"))
	require.NoError(t, c.Put(ctx, "overrides", `"api" "r" "k"`, []byte(`{"limit":1}`), 0, "ann"))
	f := must.Get(policyfile.Parse("p.yaml", []byte("version: 1\npolicies:\n  a: {rules: 5/1m per ip}\n")))(t)
	require.NoError(t, policyfile.Push(ctx, c, "", f, 0, "ann"))
	require.NoError(t, client.Set(ctx, "limit:control:{limit}:bans:later", "x", 0).Err())
	must.Get(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}).Sharers(ctx))(t)
	for _, keys := range []int{1000, 1} {
		found := see(t, RedisOptions{Address: location{URL: addr(client)}, Keys: keys})
		for _, check := range []string{"keys", "keys-ttl", "keys-type", "keys-form", "keys-version"} {
			assert.Equal(t, OK, found[check].Verdict, found[check].Found)
			assert.NotContains(t, found[check].Found, "control")
			assert.NotContains(t, found[check].Found, "sharers")
		}
	}
	assert.Equal(t, quotas, see(t, RedisOptions{Address: location{URL: addr(client)}})["keys-ttl"].Found)
}
