package redisstore

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestBytes tests how much memory a full log takes on Redis for each unit, and logs what a
// sorted set with a UUID for each takes. The key and the expiry are included.
func TestBytes(t *testing.T) {
	client := redistest.Real(t)
	now := start
	store := at(client, &now)
	zset := redis.NewScript(zsetScript)
	for limit, most := range map[int64]float64{100: 5.5, 1000: 5.5, 10_000: 5} {
		for range limit {
			now++
			d := storetest.MustTake(t, store, core.Charge{Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Limit: limit, Window: 3600_000_000}})
			require.True(t, d.Allowed)
		}
		size := must.Get(client.MemoryUsage(t.Context(), lua.Key("limit", named("p", "r", "k")), 0).Result())(t)
		t.Logf("limit %d: %.2f bytes a unit", limit, float64(size)/float64(limit))
		assert.LessOrEqual(t, float64(size)/float64(limit), most, limit)
		require.NoError(t, storetest.Reset(t.Context(), store, "p", "r", "k"))

		for i := range limit {
			args := []any{now, store.grace, fmt.Sprintf("%036d", i), 1, limit, int64(3600_000_000)}
			require.NoError(t, zset.Run(t.Context(), client, []string{"zset"}, args...).Err())
		}
		set := must.Get(client.MemoryUsage(t.Context(), "zset", 0).Result())(t)
		t.Logf("limit %d: %d bytes, and %d as a sorted set", limit, size, set)
		require.NoError(t, client.Del(t.Context(), "zset").Err())
	}
}
