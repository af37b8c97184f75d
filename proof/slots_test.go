package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// two returns charges of two rules, with a key each.
func two(first, second string) []core.Charge {
	charges := []core.Charge{unlimited[0], unlimited[0]}
	charges[0].Rule, charges[0].Key = "first", first
	charges[1].Rule, charges[1].Key = "second", second
	return charges
}

// TestClusterSlots moves slots of a Cluster under load, and leaves one half-moved.
func TestClusterSlots(t *testing.T) {
	nodes := redistest.StartCluster(t, 5*time.Second)
	client := redistest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()}))
	store := redisstore.New(client, &redisstore.Options{Timeout: time.Second})
	t.Run("reshard", func(t *testing.T) { reshard(t, nodes, client, store) })
	t.Run("replicas", func(t *testing.T) { replicas(t, nodes) })
	t.Run("stuck", func(t *testing.T) { stuck(t, nodes, client, store) })
}

// replicas shows why the store refuses clients that read from replicas: a replica runs
// scripts on their connections, on stale data. A demoted primary keeps its connections,
// and would answer a peek from stale data too.
func replicas(t *testing.T, nodes redistest.Nodes) {
	owner := nodes.Owner(t, "a")
	conn := nodes.Replica(t, owner).Client().Conn()
	defer conn.Close()
	exists := func() error {
		return conn.Eval(t.Context(), "return redis.call('EXISTS', KEYS[1])", []string{"a"}).Err()
	}
	require.ErrorContains(t, exists(), "MOVED")
	require.NoError(t, conn.ReadOnly(t.Context()).Err())
	require.NoError(t, exists())
}

func keyOf(policy string) string { return redisKey("limit", policy, "first", "k") }

// reshard moves slots away from the owner of slot 0, some with existing keys. No
// decision fails, and none is lost.
func reshard(t *testing.T, nodes redistest.Nodes, client *redis.ClusterClient, store core.Store) {
	slots := 100
	if failovers() > 1 {
		slots = 1000
	}
	var policies []string
	for i := 0; len(policies) < 8; i++ {
		policy := fmt.Sprint("POST /route/", i)
		if client.ClusterKeySlot(t.Context(), keyOf(policy)).Val() < int64(slots) {
			policies = append(policies, policy)
		}
	}
	from := nodes.Owner(t, keyOf(policies[0]))
	var to *redistest.Server
	for i := 0; to == nil || to == from; i++ {
		to = nodes.Owner(t, fmt.Sprint(i))
	}
	id := func(s *redistest.Server) string { return s.Client().Do(t.Context(), "cluster", "myid").Val().(string) }

	var counts [8]atomic.Int64
	var failed atomic.Int64
	var longest atomic.Int64
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i, policy := range policies {
		must.Get(core.Take(t.Context(), store, storetest.Of(policy, two("k", "k")...)))(t)
		counts[i].Add(1)
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				began := time.Now()
				if _, err := core.Take(context.Background(), store, storetest.Of(policy, two("k", "k")...)); err != nil {
					t.Error(err)
					failed.Add(1)
				}
				longest.Store(max(longest.Load(), int64(time.Since(began))))
				counts[i].Add(1)
			}
		})
	}
	began := time.Now()
	nodes.Manage(t, "reshard", from.Addr, "--cluster-from", id(from), "--cluster-to", id(to), "--cluster-slots", fmt.Sprint(slots))
	took := time.Since(began)
	close(stop)
	done.Wait()
	total := int64(0)
	for i, policy := range policies {
		require.Equal(t, to, nodes.Owner(t, keyOf(policy)), "the slot has moved")
		d := must.Get(core.Take(t.Context(), store, storetest.Of(policy, two("k", "k")...)))(t)
		for _, o := range d.Outcomes() {
			assert.EqualValues(t, counts[i].Load()+1, 1_000_000_000-o.Remaining, "each decision counts once")
		}
		total += counts[i].Load()
	}
	t.Logf("%d slots in %v under load: %d decisions, %d failed; the longest took %v", slots, took.Round(time.Millisecond), total, failed.Load(), time.Duration(longest.Load()))
}

// stuck leaves a slot between two nodes. Redis cannot run a script there unless all of
// its keys are on one side. Existing keys are decided; others fail at once as
// unavailable, and nothing is taken in part.
func stuck(t *testing.T, nodes redistest.Nodes, client *redis.ClusterClient, store core.Store) {
	const policy = "stuck"
	must.Get(core.Take(t.Context(), store, storetest.Of(policy, two("k", "k")...)))(t)
	slot := client.ClusterKeySlot(t.Context(), keyOf(policy)).Val()
	source := nodes.Owner(t, keyOf(policy))
	var target *redistest.Server
	for i := 0; target == nil || target == source; i++ {
		target = nodes.Owner(t, fmt.Sprint(i))
	}
	from, to := source.Client(), target.Client()
	id := func(c *redis.Client) string { return c.Do(t.Context(), "cluster", "myid").Val().(string) }
	require.NoError(t, to.Do(t.Context(), "cluster", "setslot", slot, "importing", id(from)).Err())
	require.NoError(t, from.Do(t.Context(), "cluster", "setslot", slot, "migrating", id(to)).Err())

	for i := range 50 {
		_, err := core.Take(t.Context(), store, storetest.Of(policy, two("k", "k")...))
		require.NoError(t, err, "existing keys")
		for _, charges := range [][]core.Charge{two(fmt.Sprint("new", i), "k"), two(fmt.Sprint("new", i), fmt.Sprint("new", i))} {
			began := time.Now()
			_, err = core.Take(t.Context(), store, storetest.Of(policy, charges...))
			require.ErrorIs(t, err, core.ErrUnavailable)
			require.ErrorContains(t, err, "TRYAGAIN")
			require.Less(t, time.Since(began), 5*time.Second)
		}
		one := []core.Charge{unlimited[0]}
		one[0].Key = fmt.Sprint("new", i)
		_, err = core.Take(t.Context(), store, storetest.Of(policy, one...))
		require.NoError(t, err, "a new key alone")
	}
	var errs []string
	for _, node := range []*redis.Client{from, to} {
		for _, key := range node.Keys(t.Context(), "*").Val() {
			if strings.Contains(key, "{stuck}:first:new") || strings.Contains(key, "{stuck}:second:new") {
				errs = append(errs, key)
			}
		}
	}
	require.Empty(t, errs, "nothing was taken in part")
	require.NoError(t, errors.Join(
		from.Do(t.Context(), "cluster", "setslot", slot, "stable").Err(),
		to.Do(t.Context(), "cluster", "setslot", slot, "stable").Err()))
	d := must.Get(core.Take(t.Context(), store, storetest.Of(policy, two("new", "k")...)))(t, "after it is done")
	require.EqualValues(t, 52, 1_000_000_000-d.Outcomes()[1].Remaining)
	t.Log("a stuck slot: 50 of 50 decisions on existing keys, 50 of 50 on one new key, 0 of 100 where keys are apart or all new")
}
