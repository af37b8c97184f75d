package guard

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A holder is a store that fails if a test says so, and calls during before Hold returns, and
// settling before Settle does.
type holder struct {
	*memstore.Store
	during   func()
	settling func()
	fails    bool
	loses    bool // the reply to a settlement
}

func (h *holder) Take(ctx context.Context, asks []core.Ask) error {
	if h.fails {
		return errAway
	}
	return h.Store.Take(ctx, asks)
}

func (h *holder) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	done, err := h.Store.Settle(ctx, list)
	if settling := h.settling; settling != nil {
		h.settling = nil
		settling()
	}
	if h.loses {
		return nil, errAway
	}
	return done, err
}

func (h *holder) Hold(ctx context.Context, ask *core.Ask, of *core.Hold) error {
	err := h.Store.Hold(ctx, ask, of)
	if during := h.during; during != nil {
		h.during = nil
		during()
	}
	return err
}

// heldQuotas are quotas whose units are held.
var heldQuotas = []core.Quota{
	{Algorithm: core.FixedWindow, Limit: 100, Window: day},
	{Algorithm: core.SlidingCells, Limit: 100, Window: day, Cells: 24},
	{Algorithm: core.TokenBucket, Limit: 100, Window: day, Burst: 100},
	{Limit: 100, Window: day},
}

// TestLateHold decides a request of the same key locally while the store holds one, so that
// the memory has no room for it. What the store holds comes back once, and not again when the
// hold would have ended.
func TestLateHold(t *testing.T) {
	for _, q := range heldQuotas {
		var now atomic.Int64
		now.Store(1_750_000_000 * sec)
		store := &holder{Store: at(&now)}
		s := newStore(store, &Options{Log: nowhere}, at(&now), now.Load)
		c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, Cost: 1}
		used := int64(0)
		take := func(n int64) {
			c := c
			if c.Cost = n; storetest.MustTake(t, s, c).Allowed {
				used += n
			}
		}
		locally := func(n int64) {
			store.fails = true
			take(n)
			store.fails = false
		}
		locally(1) // from then on the guard knows that the store reports losses
		now.Add(2_000_000)
		s.payNext()
		store.during = func() { locally(50) }
		ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("x"), Life: core.MinHold}
		ask.Charges[0].Cost = 60
		require.NoError(t, s.Hold(t.Context(), &ask, &h))
		require.False(t, ask.Decision.Allowed, q.Algorithm)
		for range 5 {
			now.Add(500_000)
			s.payNext()
		}
		ask.Charges[0].Cost, h.ID = 0, core.HoldIDOf("y")
		require.NoError(t, store.Hold(t.Context(), &ask, &h))
		require.Empty(t, h.Over, "%v: a hold that has ended", q.Algorithm)
		other := newStore(store, &Options{Log: nowhere}, at(&now), now.Load) // which knows only what the store counts
		for range 100 {
			if storetest.MustTake(t, other, c).Allowed {
				used++
			}
		}
		require.LessOrEqual(t, used, int64(100), q.Algorithm)
	}
}

// TestHoldBesideAFlood holds what a policy takes although the memory has no room for the keys of
// another one, and nothing of those keys.
func TestHoldBesideAFlood(t *testing.T) {
	var now atomic.Int64
	now.Store(1_750_000_000 * sec)
	guards, _ := small(1, &now)
	flood(t, guards[0], core.Quota{Limit: 5, Window: day})
	for key, found := range map[string]core.Found{"": core.HoldUnknown, "flooded": core.HoldRefused} {
		c := core.Charge{Policy: "p", Rule: "r", Key: key, Quota: core.Quota{Limit: 100, Window: hour}, Cost: 1}
		ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("x"), Life: core.MinHold}
		require.NoError(t, guards[0].Hold(t.Context(), &ask, &h))
		require.True(t, ask.Decision.Allowed)
		require.Equal(t, found, h.Found, key)
	}
}

// TestSettledInMemory settles what was held, up and down, also where the reply is lost and the store
// is asked again. When the store then fails, the memory admits what the settlement has left, and of
// a bucket half of its burst more after half a day. Costs without room count nothing, nor does
// a settlement of what is settled.
func TestSettledInMemory(t *testing.T) {
	for _, q := range heldQuotas {
		for _, used := range []int64{0, 5, 40, 70, 100, 130} {
			for _, lost := range []bool{false, true} {
				var now atomic.Int64
				now.Store(1_750_000_000 * sec)
				store := &holder{Store: at(&now)}
				s := newStore(store, &Options{Log: nowhere}, at(&now), now.Load)
				c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, Cost: 40}
				ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("x"), Life: core.MinHold}
				require.NoError(t, s.Hold(t.Context(), &ask, &h))
				of := []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: used}}
				if store.loses = lost; lost {
					_, err := s.Settle(t.Context(), of)
					require.ErrorIs(t, err, core.ErrUnavailable)
					of[0].Tag, store.loses = 0, false
				}
				must.Get(s.Settle(t.Context(), of))(t)
				of[0].Tag, of[0].Used = ask.Decision.Tag, 20
				must.Get(s.Settle(t.Context(), of))(t)
				store.fails = true
				now.Add(day / 2)
				want := 100 - min(used, 100)
				switch {
				case !q.Refills():
				case lost && used > 100: // the memory does not know that some of it was forgiven
					want = 150 - used
				default:
					want = min(100, want+50)
				}
				c.Cost = 1
				admitted := int64(0)
				for range 101 {
					if storetest.MustTake(t, s, c).Allowed {
						admitted++
					}
				}
				require.Equal(t, want, admitted, "%v settled at %d", q.Algorithm, used)
			}
		}
	}
}

// TestReleasedInMemory settles what was held, and releases a lease with it, also where the reply is
// lost and the store is asked again. When the store then fails, the memory has the slot free.
func TestReleasedInMemory(t *testing.T) {
	for _, lost := range []bool{false, true} {
		store := &holder{Store: memstore.New(nil)}
		s := New(store, &Options{Log: nowhere})
		c, lease := core.Charge{Policy: "p", Rule: "units", Quota: core.Quota{Limit: 100, Window: day}, Cost: 40}, leased(1)
		lease.Policy, lease.Quota.Limit = "p", 1
		ask, h := core.Ask{Charges: []core.Charge{c, lease}}, core.Hold{ID: core.HoldIDOf("x"), Life: core.MinHold}
		require.NoError(t, s.Hold(t.Context(), &ask, &h))
		of := []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: 20, Leases: []core.Charge{lease}}}
		if store.loses = lost; lost {
			_, err := s.Settle(t.Context(), of)
			require.ErrorIs(t, err, core.ErrUnavailable)
			of[0].Tag, store.loses = 0, false
		}
		must.Get(s.Settle(t.Context(), of))(t)
		store.fails = true
		lease.ID = 2
		require.True(t, storetest.MustTake(t, s, lease).Allowed)
	}
}

// TestReleasedBeforeOthers has requests take the slot that a settlement has released in the store,
// before the guard has the reply. The memory counts each of them: when the store then fails, it
// admits no other.
func TestReleasedBeforeOthers(t *testing.T) {
	store := &holder{Store: memstore.New(nil)}
	s := New(store, &Options{Log: nowhere})
	slot := func(id uint64) core.Charge {
		lease := leased(id)
		lease.Policy, lease.Quota.Limit = "p", 1
		return lease
	}
	begin := func(id uint64) core.Settlement {
		c := core.Charge{Policy: "p", Rule: "units", Quota: core.Quota{Limit: 100, Window: day}, Cost: 1}
		ask, h := core.Ask{Charges: []core.Charge{c, slot(id)}}, core.Hold{ID: core.HoldID{byte(id)}, Life: core.MinHold}
		require.NoError(t, s.Hold(t.Context(), &ask, &h))
		require.True(t, ask.Decision.Allowed)
		return core.Settlement{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: 1, Leases: []core.Charge{slot(id)}}
	}
	end := func(of core.Settlement) { must.Get(s.Settle(t.Context(), []core.Settlement{of}))(t) }
	first := begin(1)
	store.settling = func() {
		second := begin(2)
		store.settling = func() { begin(3) }
		end(second)
	}
	end(first)
	store.fails = true
	require.False(t, storetest.MustTake(t, s, slot(4)).Allowed)
	require.Equal(t, []bool{true}, must.Get(s.own.Renew(t.Context(), []core.Charge{slot(3)}))(t))
}
