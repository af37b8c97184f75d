package prefetch

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

// ask returns an ask of charges of policy "p".
func ask(charges ...core.Charge) core.Ask {
	for i := range charges {
		charges[i].Policy = "p"
	}
	return core.Ask{Charges: charges}
}

// TestWatchingAndReserve has a watching ask beside a deciding one: each is decided by
// itself. Requests with a reserve are decided once, by the store, and by the quota that
// leaves room for permits.
func TestWatchingAndReserve(t *testing.T) {
	in(t, core.Quota{Limit: 1000, Window: 1_000_000}, func(o *one) {
		t := o.t
		admitted := o.warm()
		held, left := o.held(), o.left()
		require.EqualValues(t, 1000-admitted, left+held)
		reserve := o.charge(1)
		reserve.Reserve = left
		d := o.take(reserve)
		require.False(t, d.Allowed, "it keeps off what the store has left")
		require.Equal(t, left, d.Outcomes()[0].Remaining)
		require.Equal(t, held, o.held())

		single := core.Quota{Limit: 1, Window: 60_000_000}
		other := core.Charge{Rule: "key", Quota: single, Cost: 1}
		watched := core.Charge{Rule: "watched", Quota: single, Cost: 1}
		calls := o.inner.count()
		asks := []core.Ask{ask(o.charge(1)), ask(other), ask(watched, o.charge(1))}
		for i, want := range [][]bool{{true, true, true}, {true, false, false}} {
			held := o.held()
			require.NoError(t, o.store.Take(o.ctx, asks))
			calls++
			require.Equal(t, calls, o.inner.count(), "one call for what has no permits")
			taken := int64(0)
			for j := range asks {
				d := &asks[j].Decision
				require.Equal(t, want[j], d.Allowed, "call %d, ask %d", i, j)
				require.Len(t, d.Outcomes(), len(asks[j].Charges))
				if d.Allowed && j != 1 {
					taken++
				}
			}
			require.Equal(t, held-taken, o.held(), "a refused ask keeps its permits")
			require.True(t, asks[2].Decision.Outcomes()[1].Fits())
		}
	})
}

// TestDrainedAsk has an ask that is admitted once the permits are given back, beside
// one that the store decides at once: that is decided only once.
func TestDrainedAsk(t *testing.T) {
	in(t, core.Quota{Limit: 100, Window: 60_000_000}, func(o *one) {
		used := o.warm()
		require.Positive(o.t, o.held())
		other := core.Charge{Rule: "key", Quota: perMinute, Cost: 1}
		asks := []core.Ask{ask(other), ask(o.charge(100 - used))}
		require.NoError(o.t, o.store.Take(o.ctx, asks))
		require.True(o.t, asks[0].Decision.Allowed)
		require.True(o.t, asks[1].Decision.Allowed)
		require.Zero(o.t, o.held())
		d := o.take(other)
		require.EqualValues(o.t, 998, d.Outcomes()[0].Remaining)
	})
}

// A second store fails from its second call on.
type second struct {
	core.Store
	calls int
}

var errSecond = errors.New("second call")

func (s *second) Take(ctx context.Context, asks []core.Ask) error {
	if s.calls++; s.calls > 1 {
		return errSecond
	}
	return s.Store.Take(ctx, asks)
}

// TestSecondCallFails holds that nothing is taken if the call after permits were given
// back fails.
func TestSecondCallFails(t *testing.T) {
	in(t, core.Quota{Limit: 100, Window: 60_000_000}, func(o *one) {
		used := o.warm()
		other := core.Charge{Rule: "key", Quota: perMinute, Cost: 1}
		o.store.store = &second{Store: o.inner}
		asks := []core.Ask{ask(other), ask(o.charge(100 - used))}
		require.ErrorIs(o.t, o.store.Take(o.ctx, asks), errSecond)
		o.store.store = o.inner
		require.Equal(o.t, 100-used, o.left()+o.held())
		other.Cost = 0
		d := o.take(other)
		require.EqualValues(o.t, 1000, d.Outcomes()[0].Remaining)
	})
}

// TestVariants holds that charges with a variant are decided by the store, each variant
// by itself.
func TestVariants(t *testing.T) {
	in(t, perMinute, func(o *one) {
		c := o.charge(1)
		c.Variant = "gold"
		for n := range int64(200) {
			d := o.take(c)
			require.Equal(o.t, 999-n, d.Outcomes()[0].Remaining)
		}
		require.Equal(o.t, 200, o.inner.count())
		require.Zero(o.t, o.store.pools.Load())
		require.NoError(o.t, o.store.Reset(o.ctx, []core.Charge{{Policy: "p", Rule: "all", Variant: "gold"}}))
		d := o.take(c)
		require.EqualValues(o.t, 999, d.Outcomes()[0].Remaining)
	})
}

// TestReturned holds that the outcome of a return counts the permits, whether the units
// become permits again or not.
func TestReturned(t *testing.T) {
	in(t, perMinute, func(o *one) {
		used := o.warm()
		d := o.take(o.charge(2))
		c := ask(o.charge(2)).Charges[0]
		results := must.Get(o.store.Return(o.ctx, []core.Return{d.Return(0, c)}))(o.t)
		require.EqualValues(o.t, 2, results[0].Units)
		require.Equal(o.t, 1000-used, results[0].Outcome.Remaining)
		back := d.Return(0, c)
		back.At-- // of no chunk
		held := o.held()
		results = must.Get(o.store.Return(o.ctx, []core.Return{back}))(o.t)
		require.Equal(o.t, o.left()+held, results[0].Outcome.Remaining)
	})
}
