package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestCluster decides on policies all over a real cluster, with keys of users
// that try to leave their policy's slot.
func TestCluster(t *testing.T) {
	client := redistest.Cluster(t)
	store := New(client, &patient)
	keys := []string{"", "}", "{}", "{x}", "}{", "a}:b", "\x00\r\n", "203.0.113.9"}
	for i := range 100 {
		policy := fmt.Sprint("POST /route/", i)
		for _, key := range keys {
			charges := []core.Charge{charge("key", key, 2, time.Minute), charge("all", "", 1000, time.Minute)}
			for n := range 3 {
				d := must.Get(storetest.Take(t.Context(), store, policy, charges))(t)
				assert.Equal(t, n < 2, d.Allowed)
			}
		}
		d := must.Get(storetest.Take(t.Context(), store, policy, []core.Charge{charge("all", "", 1000, time.Minute)}))(t)
		assert.EqualValues(t, 1000-2*len(keys)-1, d.Outcomes()[0].Remaining)
	}
	var mu sync.Mutex
	masters := 0
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		if node.DBSize(ctx).Val() > 0 {
			mu.Lock()
			defer mu.Unlock()
			masters++
		}
		return nil
	}))
	assert.Equal(t, 3, masters, "policies are spread over the shards")

	now := start
	compareBatches(t, at(client, &now), &now, 15)
}
