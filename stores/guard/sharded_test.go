package guard

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A sharded store is away, or one of its shards is, or a Release fails or panics once.
type sharded struct {
	core.Store
	away, fails, panics atomic.Bool
	released            atomic.Int64
}

func (f *sharded) Take(ctx context.Context, asks []core.Ask) error {
	if f.away.Load() {
		return errAway
	}
	return f.Store.Take(ctx, asks)
}

// Release fails late for policies on the shard that stays away.
func (f *sharded) Release(ctx context.Context, charges []core.Charge) error {
	switch {
	case f.away.Load(), f.fails.Swap(false):
		return errAway
	case f.panics.Swap(false):
		panic("as a test wants")
	case strings.HasPrefix(charges[0].Policy, "dead"):
		time.Sleep(100 * time.Millisecond)
		return errAway
	}
	f.released.Add(1)
	return f.Store.Release(ctx, charges)
}

// newSharded returns a store that is away, and a guard that owes it a unit of so many keys.
func newSharded(t *testing.T, instances, keys int) (*sharded, *Store) {
	f := &sharded{Store: memstore.New(nil)}
	f.away.Store(true)
	s := New(f, &Options{Instances: instances, Log: nowhere})
	for i := range keys {
		c := core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(i), Quota: core.Quota{Limit: 10, Window: day}, Cost: 1}
		require.Equal(t, core.ModeLocal, storetest.MustTake(t, s, c).Mode)
	}
	return f, s
}

// TestDeadShard has leases on a shard that stays away for longer than the others: those decide, and
// are paid, all the same.
func TestDeadShard(t *testing.T) {
	for _, leases := range []int{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newSharded(t, 1, 1000)
			for i := range leases {
				require.NoError(t, s.Release(t.Context(), storetest.Of(fmt.Sprint("dead", i), slot(uint64(i+1), 1)...)))
			}
			f.away.Store(false)
			for range 200 { // one second
				time.Sleep(5 * time.Millisecond)
				storetest.MustTake(t, s, charge("hot", 100_000, core.Local))
			}
			require.Zero(t, s.Condition().Owed)
			exact := 0
			for range 1000 {
				time.Sleep(5 * time.Millisecond)
				if storetest.MustTake(t, s, charge("hot", 100_000, core.Local)).Mode == core.ModeExact {
					exact++
				}
			}
			require.Greater(t, exact, 950)
			time.Sleep(oneLease + time.Hour)
		})
	}
}

// TestReleaseBesidePayments has one of 1,000 instances release leases while it pays slowly: a Release
// that failed is soon repeated.
func TestReleaseBesidePayments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newSharded(t, 1000, 400)
		f.away.Store(false)
		time.Sleep(3 * time.Second)
		for i := range 10 {
			f.fails.Store(true)
			require.NoError(t, s.Release(t.Context(), storetest.Of("p", slot(uint64(i+1), 1)...)))
			time.Sleep(100 * time.Millisecond)
			require.EqualValues(t, i+1, f.released.Load())
		}
		require.NotZero(t, s.Condition().Owed)
		time.Sleep(time.Hour)
	})
}

// TestPanicOfProbe has a store panic in the Release that probes it: debts are paid all the same.
func TestPanicOfProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newSharded(t, 1, 6)
		require.NoError(t, s.Release(t.Context(), storetest.Of("p", slot(1, 1)...)))
		f.panics.Store(true)
		f.away.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.False(t, f.panics.Load(), "it has panicked")
		require.Zero(t, s.Condition().Owed)
	})
}
