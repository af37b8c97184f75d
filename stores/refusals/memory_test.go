package refusals

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// TestResetElsewhere holds that a quota which another process resets is refused no
// longer than a second, nor past the RetryAfter.
func TestResetElsewhere(t *testing.T) {
	for _, row := range []struct{ window, holds int64 }{{60_000_000, longest}, {300_000, 300_000}} {
		w := newTwins()
		charges := []core.Charge{charge("a", "k", core.Quota{Limit: 1, Window: row.window}, 1)}
		take := func() core.Decision {
			return storetest.MustTake(t, w.store, charges...)
		}
		w.inner.then = func() { w.time += 1000 } // on the way back
		require.True(t, take().Allowed)
		require.NoError(t, storetest.Reset(t.Context(), w.inner, "p", "a", "k")) // by another process
		w.time += row.holds - 1001
		d := take()
		require.Equal(t, core.ModeRemembered, d.Mode)
		require.Equal(t, row.window-row.holds+1001, d.RetryAfter(), "counted from the answer, so that waiting for it is enough")
		require.Equal(t, 1, w.inner.asked)
		w.time++
		require.True(t, take().Allowed, "then the store is asked again")
	}
}

// TestReturnMeanwhile holds that a refusal is not remembered if units were returned
// during its call.
func TestReturnMeanwhile(t *testing.T) {
	w := newTwins()
	charges := []core.Charge{charge("a", "k", core.Quota{Limit: 1, Window: 5_000_000}, 1)}
	first := storetest.MustTake(t, w.store, charges...)
	w.time += longest
	w.inner.then = func() {
		w.inner.then = nil
		must.Get(w.store.Return(t.Context(), []core.Return{first.Return(0, charges[0])}))(t)
	}
	d := storetest.MustTake(t, w.store, charges...)
	require.False(t, d.Allowed)
	d = storetest.MustTake(t, w.store, charges...)
	require.True(t, d.Allowed)
}

// TestReturnKeepsRefusals returns a unit of a key that clients share. Refusals of another
// client, which need to know that key too, are still made from memory, and the shared key
// has what it has after the return.
func TestReturnKeepsRefusals(t *testing.T) {
	w := newTwins()
	all := charge("all", "", core.Quota{Limit: 10, Window: 60_000_000}, 1)
	of := func(client string) []core.Charge {
		return []core.Charge{all, charge("client", client, core.Quota{Limit: 1, Window: 60_000_000}, 1)}
	}
	storetest.MustTake(t, w.store, of("refused")...)
	w.time++
	require.Equal(t, core.ModeRemembered, storetest.MustTake(t, w.store, of("refused")...).Mode)
	other := of("other")
	d := storetest.MustTake(t, w.store, other...)
	require.True(t, d.Allowed)
	w.time++
	must.Get(w.store.Return(t.Context(), []core.Return{d.Return(0, other[0]), d.Return(1, other[1])}))(t)
	w.time++
	asked := w.inner.asked
	d = storetest.MustTake(t, w.store, of("refused")...)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 9, d.Outcomes()[0].Remaining)
	assert.Equal(t, asked, w.inner.asked)
	d = storetest.MustTake(t, w.store, other...)
	assert.True(t, d.Allowed)
}

// TestNotRemembered has refusals that may end at any time, and requests that
// differ in a single attribute.
func TestNotRemembered(t *testing.T) {
	full := []core.Charge{charge("a", "k", perSecond(1), 1), charge("b", "k", perSecond(9), 1)}
	change := func(of func(c []core.Charge)) []core.Charge {
		c := append([]core.Charge(nil), full...)
		of(c)
		return c
	}
	long := make([]byte, maxKey+1)
	slot := core.Charge{Policy: "p", Rule: "a", Key: "k", Cost: 1, ID: 1, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: 1_000_000}}
	other := slot
	other.ID = 2
	for name, row := range map[string]struct {
		first, second, third []core.Charge
		mode                 core.Mode
	}{
		"several units":    {full[:1], change(func(c []core.Charge) { c[0].Quota.Limit, c[0].Cost = 2, 2 })[:1], nil, core.ModeExact},
		"slots":            {[]core.Charge{slot}, []core.Charge{other}, nil, core.ModeExact},
		"another key":      {full, full, change(func(c []core.Charge) { c[1].Key = "l" }), core.ModeExact},
		"another rule":     {full, full, change(func(c []core.Charge) { c[1].Rule = "c" }), core.ModeExact},
		"another cost":     {full, full, change(func(c []core.Charge) { c[0].Cost = 2 }), core.ModeExact},
		"more of another":  {full, full, change(func(c []core.Charge) { c[1].Cost = 10 }), core.ModeExact},
		"a raised limit":   {full, full, change(func(c []core.Charge) { c[0].Quota.Limit = 5 }), core.ModeExact},
		"no blocked rule":  {full, full, full[1:], core.ModeExact},
		"a look":           {full, full, change(func(c []core.Charge) { c[0].Cost, c[1].Cost = 0, 0 }), core.ModeExact},
		"more than it has": {nil, change(func(c []core.Charge) { c[0].Cost = 2 }), nil, core.ModeExact},
		"another variant":  {full, full, change(func(c []core.Charge) { c[1].Variant = "v" }), core.ModeExact},
		"a reserve":        {full, full, change(func(c []core.Charge) { c[0].Reserve = 1 }), core.ModeExact},
		"with a reserve":   {change(func(c []core.Charge) { c[1].Reserve = 8 }), change(func(c []core.Charge) { c[1].Reserve = 8 }), full[1:], core.ModeExact},
		"by a failure":     {full[:1], full[:1], nil, core.ModeLocal},
		"a long key":       {change(func(c []core.Charge) { c[0].Key = string(long) }), change(func(c []core.Charge) { c[0].Key = string(long) }), nil, core.ModeExact},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwins()
			w.inner.mode = row.mode
			for _, charges := range [][]core.Charge{row.first, row.second} {
				if charges != nil {
					storetest.MustTake(t, w.store, charges...)
				}
			}
			third := row.third
			if third == nil {
				third = row.second
			}
			asked := w.inner.asked
			storetest.MustTake(t, w.store, third...)
			assert.Equal(t, asked+1, w.inner.asked)
		})
	}
	w := newTwins()
	for range 5 {
		storetest.MustTake(t, w.store, full...)
	}
	require.Equal(t, 1, w.inner.asked, "the same is remembered")
	must.Get(storetest.Take(t.Context(), w.store, "q", full))(t)
	require.Equal(t, 2, w.inner.asked, "another policy")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := core.Take(ctx, w.store, full)
	require.ErrorIs(t, err, context.Canceled)
}

// TestCollisions has more keys than are remembered, so that they displace each other.
func TestCollisions(t *testing.T) {
	race.Skip(t)
	w := newTwins()
	for key := range 3 * MaxKeys {
		charges := []core.Charge{charge("a", fmt.Sprint(key), perSecond(1), 1)}
		for try := range 2 {
			d := storetest.MustTake(t, w.store, charges...)
			require.Equal(t, try == 0, d.Allowed, "key %d", key)
		}
	}
}

// TestLargerCost holds that a refusal of several units leaves what is known of one,
// unless it shows that another process took some.
func TestLargerCost(t *testing.T) {
	w := newTwins()
	take := func(store core.Store, cost int64) core.Decision {
		return storetest.MustTake(t, store, charge("a", "k", core.Quota{Limit: 3, Window: 10_000_000}, cost))
	}
	take(w.store, 3)
	require.Equal(t, core.ModeExact, take(w.store, 2).Mode)
	require.Equal(t, core.ModeRemembered, take(w.store, 1).Mode)

	require.NoError(t, storetest.Reset(t.Context(), w.store, "p", "a", "k"))
	w.time++
	take(w.store, 1)
	take(w.inner, 2) // by another process
	require.Equal(t, core.ModeExact, take(w.store, 3).Mode)
	w.time++
	require.Equal(t, core.ModeExact, take(w.store, 1).Mode)
	require.Equal(t, core.ModeRemembered, take(w.store, 1).Mode)
}

// TestDisplacedOutcome holds that the outcome of a call that overlapped a displaced one
// is not stored, since it may be the older one.
func TestDisplacedOutcome(t *testing.T) {
	var s set
	of := func(key string) *core.Charge { c := charge("a", key, perSecond(2), 1); return &c }
	s.store(0, of("first"), outcome{asked: 10, answered: 20})
	for i := range int64(ways) {
		s.store(0, of(fmt.Sprint(i)), outcome{asked: 21 + i, answered: 30 + i})
	}
	_, known := s.load(0, of("first"), 40)
	require.Nil(t, known, "it was displaced")
	s.store(0, of("first"), outcome{asked: 15, answered: 40, remaining: 1})
	_, known = s.load(0, of("first"), 40)
	require.Nil(t, known)
	s.store(0, of("first"), outcome{asked: 41, answered: 50})
	_, known = s.load(0, of("first"), 50)
	require.NotNil(t, known)
}

func TestNilStore(t *testing.T) {
	require.PanicsWithValue(t, "refusals: the store is nil: write refusals.New(guard.New(redisstore.New(client, nil), nil))", func() { New(nil) })
}

func TestAllocations(t *testing.T) {
	w := newTwins()
	charges := []core.Charge{charge("a", "k", perSecond(1), 1), charge("b", "k", perSecond(9), 1)}
	watched := []core.Charge{charge("watched", "k", perSecond(1), 1)}
	asks := []core.Ask{{Charges: charges}, {Charges: watched}}
	ctx := t.Context()
	take := func() { _ = w.store.Take(ctx, asks) }
	take()
	take()
	require.Zero(t, testing.AllocsPerRun(100, take))
	require.Equal(t, 1, w.inner.asked)
}

func BenchmarkRemembered(b *testing.B) {
	store := New(memstore.New(nil))
	ctx := b.Context()
	charges := []core.Charge{charge("a", "k", core.Quota{Limit: 1, Window: 1_000_000}, 1), charge("b", "k", perSecond(9), 1)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		asks := []core.Ask{{Charges: charges}}
		for pb.Next() {
			_ = store.Take(ctx, asks)
		}
	})
}

// BenchmarkAdmitted is what remembering adds to a decision of the store.
func BenchmarkAdmitted(b *testing.B) {
	store := New(admits{})
	ctx := b.Context()
	charges := []core.Charge{charge("a", "k", perSecond(1000), 1), charge("b", "k", perSecond(1000), 1)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		asks := []core.Ask{{Charges: charges}}
		for pb.Next() {
			_ = store.Take(ctx, asks)
		}
	})
}

type admits struct{ core.Store }

func (admits) Take(_ context.Context, asks []core.Ask) error {
	d := &asks[0].Decision
	*d = core.NewDecision(1, len(asks[0].Charges))
	d.Allowed = true
	for i := range d.Outcomes() {
		d.Outcomes()[i] = core.Outcome{Remaining: 5, MoreAfter: 1, ResetAfter: 2}
	}
	return nil
}

// TestLearnsFromReserve holds that the outcome of a charge with a reserve that fits is
// remembered.
func TestLearnsFromReserve(t *testing.T) {
	w := newTwins()
	c := charge("a", "k", perSecond(2), 1)
	reserve := c
	reserve.Reserve = 1
	for i, row := range []struct {
		charge  core.Charge
		allowed bool
		mode    core.Mode
	}{
		{reserve, true, core.ModeExact}, {reserve, false, core.ModeExact}, {c, true, core.ModeExact}, {c, false, core.ModeRemembered},
	} {
		d := storetest.MustTake(t, w.store, row.charge)
		require.Equal(t, row.allowed, d.Allowed, "step %d", i)
		require.Equal(t, row.mode, d.Mode, "step %d", i)
		w.time++
	}
}
