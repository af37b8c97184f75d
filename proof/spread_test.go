package proof

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// Two rules: 20 in 100 ms for each of eight keys, 100 in 70 ms for all.
const keys = 8

var (
	perKey = core.Quota{Limit: 20, Window: 100_000}
	global = core.Quota{Limit: 100, Window: 70_000}
)

// mostIn returns the largest number of the sorted times in any half-open window.
func mostIn(times []int64, window int64) int {
	most, first := 0, 0
	for i, t := range times {
		for t-times[first] >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// TestAnyWindowSpread takes from many goroutines on a Cluster of six processes, with a
// store that spreads. No rule admits more than its limit in any window of its server's
// clock, and most of what the rules allow is admitted.
func TestAnyWindowSpread(t *testing.T) {
	client := redistest.StartCluster(t, 5*time.Second).Client(t)
	store := redisstore.New(client, &redisstore.Options{Timeout: time.Minute, Spread: 12})

	var mu sync.Mutex
	var all []int64
	var perKeyAt [keys][]int64
	var asked atomic.Int64
	var done sync.WaitGroup
	end := time.Now().Add(proofTime(2 * time.Second))
	for g := range 64 {
		done.Go(func() {
			for i := g; time.Now().Before(end); i++ {
				key := i % keys
				d, err := core.Take(context.Background(), store, storetest.Of("proof", []core.Charge{
					{Rule: "key", Key: fmt.Sprint(key), Quota: perKey, Cost: 1},
					{Rule: "global", Quota: global, Cost: 1},
				}...))
				if err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
				if !d.Allowed {
					continue
				}
				mu.Lock()
				perKeyAt[key] = append(perKeyAt[key], d.TimeOf(0))
				all = append(all, d.TimeOf(1))
				mu.Unlock()
			}
		})
	}
	done.Wait()
	slices.Sort(all)
	inAll, inKey := mostIn(all, global.Window), 0
	for _, times := range perKeyAt {
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
	require.Greater(t, int64(len(all)), min(allowed, asked.Load())/2) // a busy machine asks for less
}

// TestSpuriousRefusals has one caller request a unit that is always free, while other
// callers, which another rule refuses, hold a unit until it is given back. A store that
// decides atomically refuses no request of the first caller.
func TestSpuriousRefusals(t *testing.T) {
	client := redistest.StartCluster(t, 5*time.Second).Client(t)
	for _, spread := range []int{0, 12} {
		store := redisstore.New(client, &redisstore.Options{Timeout: time.Minute, Spread: spread})
		for _, room := range []int64{1, 64} {
			for _, others := range []int{1, 16} {
				spurious(t, store, spread, room, others)
			}
		}
	}
}

func spurious(t *testing.T, store core.Store, spread int, room int64, others int) {
	const hour = 3_600_000_000
	policy := fmt.Sprint("spurious ", spread, room, others)
	spent := core.Charge{Policy: policy, Rule: "key", Key: "spent", Quota: core.Quota{Limit: 1, Window: hour}, Cost: 1}
	fresh := core.Charge{Policy: policy, Rule: "key", Key: "fresh", Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1_000_000, Window: hour}, Cost: 1}
	shared := core.Charge{Policy: policy, Rule: "shared", Quota: core.Quota{Limit: room, Window: hour}, Cost: 1}
	must.Get(core.Take(t.Context(), store, []core.Charge{spent}))(t)

	var stop atomic.Bool
	var refused atomic.Int64
	var done sync.WaitGroup
	for range others {
		done.Go(func() {
			for !stop.Load() {
				d, err := core.Take(context.Background(), store, []core.Charge{spent, shared})
				if err != nil || d.Allowed {
					t.Error("admitted what a rule refuses", err)
					return
				}
				refused.Add(1)
			}
		})
	}
	asked, spurious := 40, 0
	for range asked {
		charges := []core.Charge{fresh, shared}
		d := must.Get(core.Take(t.Context(), store, charges))(t)
		if !d.Allowed {
			spurious++
			continue
		}
		var returns []core.Return // so that there is a unit for the next call
		for i, o := range d.Outcomes() {
			returns = append(returns, core.Return{Charge: charges[i], At: d.TimeOf(i), Remaining: o.Remaining, ResetAfter: o.ResetAfter})
		}
		must.Get(store.Return(t.Context(), returns))(t)
	}
	stop.Store(true)
	done.Wait()
	look := shared
	look.Cost = 0
	d := must.Get(core.Take(t.Context(), store, []core.Charge{look}))(t)
	require.Equal(t, room, d.Outcomes()[0].Remaining, "all has been given back")
	t.Logf("%2d parts, %2d units free, %2d callers that another rule refuses (%d times): %d of %d refused spuriously",
		spread, room, others, refused.Load(), spurious, asked)
	if spread == 0 || room > int64(others) {
		require.Zero(t, spurious)
	}
}
