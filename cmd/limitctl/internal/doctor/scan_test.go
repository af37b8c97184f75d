package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

func TestRedisKeys(t *testing.T) {
	client := redistest.Real(t)
	ctx := t.Context()
	state := "A" + strings.Repeat("\x00", 11)
	immortal := lua.Key("limit", &core.Charge{Policy: "p", Rule: "r", Key: "immortal"})
	wrongType, wrongForm := lua.Key("limit", &core.Charge{Policy: "p", Rule: "r", Key: "list"}), lua.Key("limit", &core.Charge{Policy: "p", Rule: "r", Key: "form"})
	evil := "limit:1:{p}:r:" + hostile
	old := "limit:0:{p}:r:k"
	require.NoError(t, client.Set(ctx, immortal, state, 0).Err())
	require.NoError(t, client.RPush(ctx, wrongType, "x").Err())
	require.NoError(t, client.PExpire(ctx, wrongType, time.Hour).Err())
	require.NoError(t, client.Set(ctx, wrongForm, "hello", time.Hour).Err())
	require.NoError(t, client.Set(ctx, evil, state, time.Hour).Err())
	require.NoError(t, client.Set(ctx, old, state, time.Hour).Err())
	require.NoError(t, client.Set(ctx, "limits:1:{p}:r:other", state, 0).Err())

	found := see(t, RedisOptions{Address: location{URL: addr(client)}})
	assert.Equal(t, Fail, found["keys-ttl"].Verdict)
	assert.Contains(t, found["keys-ttl"].Found, "1 key: "+words.Quote(immortal))
	assert.Equal(t, Fail, found["keys-type"].Verdict)
	assert.Contains(t, found["keys-type"].Found, "1 key: "+words.Quote(wrongType))
	assert.Equal(t, Fail, found["keys-form"].Verdict)
	assert.Contains(t, found["keys-form"].Found, "1 key: "+words.Quote(wrongForm))
	assert.Equal(t, Warn, found["keys-version"].Verdict)
	assert.Contains(t, found["keys-version"].Found, "2 keys: "+words.Quote(old)+", ")
	assertHarmless(t, found["keys-version"].Found)

	// What it says to do helps.
	require.NoError(t, client.Unlink(ctx, immortal, wrongType, wrongForm, evil, old).Err())
	found = see(t, RedisOptions{Address: location{URL: addr(client)}})
	for _, check := range []string{"keys-ttl", "keys-type", "keys-form", "keys-version"} {
		assert.Equal(t, OK, found[check].Verdict)
	}
}

// TestRedisKeysBounded counts SCANs: however many keys others have, there are
// few.
func TestRedisKeysBounded(t *testing.T) {
	client := redistest.Real(t)
	state := "A" + strings.Repeat("\x00", 11)
	must.Get(client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 2000 {
			p.Set(t.Context(), lua.Key("limit", &core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(i)}), state, time.Hour)
			p.Set(t.Context(), fmt.Sprint("other:", i), "", time.Hour)
		}
		return nil
	}))(t)
	facts := must.Get(Redis(t.Context(), RedisOptions{Address: location{URL: "redis://" + addr(client)}, Keys: 100}))(t)
	assert.Len(t, facts.Keys.Found, 100)
	assert.True(t, facts.Keys.More)
	facts = must.Get(Redis(t.Context(), RedisOptions{Address: location{URL: "redis://" + addr(client)}, Keys: 5000}))(t)
	assert.Len(t, facts.Keys.Found, 2000)
	assert.False(t, facts.Keys.More)
	stats := must.Get(client.Info(t.Context(), "commandstats").Result())(t)
	assert.NotContains(t, stats, "cmdstat_keys:")
	assert.Contains(t, stats, "cmdstat_scan:")

	// A prefix is no pattern.
	facts = must.Get(Redis(t.Context(), RedisOptions{Address: location{URL: "redis://" + addr(client)}, Prefix: "lim*", Keys: 100}))(t)
	assert.Empty(t, facts.Keys.Found)
}
