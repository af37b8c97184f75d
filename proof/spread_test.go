package proof

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/redisstore"
)

// TestAnyWindowSpread takes from many goroutines on a Cluster of six processes, by
// a store that spreads: no rule admits more than its limit in any window of the
// clock of its own server, nothing is lost, and few are refused for the sake of
// others that are refused.
func TestAnyWindowSpread(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t, 5*time.Second).Addrs(), ContextTimeoutEnabled: true})
	defer client.Close()
	store := redisstore.New(client, &redisstore.Options{Timeout: time.Minute, Spread: 16})

	var mu sync.Mutex
	var all []int64
	var of [keys][]int64
	var asked, refused, delayed atomic.Int64
	var done sync.WaitGroup
	end := time.Now().Add(proofTime())
	for g := range 64 {
		done.Go(func() {
			for i := g; time.Now().Before(end); i++ {
				key := i % keys
				d, err := store.Take(context.Background(), "proof", []core.Charge{
					{Rule: "key", Key: fmt.Sprint(key), Quota: perKey, Cost: 1},
					{Rule: "global", Quota: global, Cost: 1},
				})
				if err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
				if !d.Allowed {
					refused.Add(1)
					// Outcomes are of the time after others have come: these say that there was room for all.
					if d.Outcomes()[0].Remaining > 0 && d.Outcomes()[1].Remaining > 0 {
						delayed.Add(1)
					}
					continue
				}
				mu.Lock()
				of[key] = append(of[key], d.TimeOf(0))
				all = append(all, d.TimeOf(1))
				mu.Unlock()
			}
		})
	}
	done.Wait()
	slices.Sort(all)
	inAll, inKey := mostIn(all, global.Window), 0
	for _, times := range of {
		slices.Sort(times)
		inKey = max(inKey, mostIn(times, perKey.Window))
	}
	require.LessOrEqual(t, inAll, int(global.Limit))
	require.LessOrEqual(t, inKey, int(perKey.Limit))
	require.Zero(t, store.Unreturned())
	span := all[len(all)-1] - all[0]
	allowed := span * global.Limit / global.Window
	t.Logf("%d asked, %d admitted, of about %d that the rules allow (%.1f %%); most in any window of 70 ms: %d of 100; "+
		"most of a key in any window of 100 ms: %d of 20", asked.Load(), len(all), allowed, 100*float64(len(all))/float64(allowed), inAll, inKey)
	require.Greater(t, int64(len(all)), allowed/2)
}

// TestSpuriousRefusals has 64 goroutines ask for units of which there are enough
// for all but one key. What a store that never takes too early would admit is
// known, and so is what is refused besides.
func TestSpuriousRefusals(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t, 5*time.Second).Addrs(), ContextTimeoutEnabled: true})
	defer client.Close()
	store := redisstore.New(client, &redisstore.Options{Timeout: time.Minute, Spread: 16})
	const hour = 3_600_000_000
	never := core.Quota{Algorithm: core.FixedWindow, Limit: 1, Window: hour}
	enough := core.Quota{Algorithm: core.FixedWindow, Limit: 1_000_000, Window: hour}
	for _, room := range []int64{1, 10, 100} { // units of the shared rule that are never spent for good
		for _, flood := range []int{1, 10, 50} { // percent of the requests that another rule refuses
			policy := fmt.Sprint("spurious", room, flood)
			shared := core.Quota{Algorithm: core.Concurrency, Limit: room, Window: hour}
			_, err := store.Take(t.Context(), policy, []core.Charge{{Rule: "key", Key: "bad", Quota: never, Cost: 1}})
			require.NoError(t, err)
			var asked, spurious atomic.Int64
			var done sync.WaitGroup
			for g := range 16 {
				done.Go(func() {
					for i := range 200 {
						id := uint64(g*1000 + i + 1)
						bad := (g*7+i*13)%100 < flood
						charges := []core.Charge{{Rule: "key", Key: "good", Quota: enough, Cost: 1}, {Rule: "shared", Quota: shared, Cost: 1, Lease: id}}
						if bad {
							charges[0].Key, charges[0].Quota = "bad", never
						} else if g > 0 {
							continue // one asks in earnest, and holds at most one unit
						}
						d, err := store.Take(context.Background(), policy, charges)
						if err != nil {
							t.Error(err)
							return
						}
						if bad {
							if d.Allowed {
								t.Error("admitted what a rule refuses")
							}
							continue
						}
						asked.Add(1)
						if !d.Allowed {
							spurious.Add(1)
							continue
						}
						if err := store.Release(context.Background(), policy, charges[1:]); err != nil {
							t.Error(err)
						}
					}
				})
			}
			done.Wait()
			d, err := store.Take(t.Context(), policy, []core.Charge{{Rule: "shared", Quota: shared}})
			require.NoError(t, err)
			require.Equal(t, room, d.Outcomes()[0].Remaining, "all has been given back")
			t.Logf("%3d units, %2d %% of 16 callers refused by another rule: %d of %d refused spuriously", room, flood, spurious.Load(), asked.Load())
		}
	}
}
