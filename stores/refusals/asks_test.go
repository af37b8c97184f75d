package refusals

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// TestStore runs the suite with a memory whose outcomes are always too old, so that all
// asks go to the store.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		var now int64
		var steps atomic.Int64
		own := memstore.New(&memstore.Options{Now: func() int64 { return now }})
		store := newStore(own, func() int64 { return steps.Add(longest) })
		test(t, storetest.Harness{Store: store, SetTime: func(micros int64) { now = micros }})
	})
}

// TestWatching has watching asks beside a deciding one: they go to the store in one call
// until memory refuses all of them.
func TestWatching(t *testing.T) {
	w := newTwins()
	asks := []core.Ask{
		{Charges: []core.Charge{charge("decides", "k", perSecond(1), 1), charge("all", "", perSecond(9), 1)}},
		{Charges: []core.Charge{charge("watches", "k", perSecond(2), 1)}},
		{Charges: []core.Charge{charge("other", "k", perSecond(3), 1)}},
	}
	type row = []any
	for i, want := range []struct {
		asked          int
		modes, allowed row
	}{
		{1, row{core.ModeExact, core.ModeExact, core.ModeExact}, row{true, true, true}},
		{1, row{core.ModeExact, core.ModeExact, core.ModeExact}, row{false, true, true}},
		{1, row{core.ModeExact, core.ModeExact, core.ModeExact}, row{false, false, true}},
		{0, row{core.ModeRemembered, core.ModeRemembered, core.ModeRemembered}, row{false, false, false}},
	} {
		asked := w.inner.asked
		require.NoError(t, w.store.Take(t.Context(), asks))
		require.Equal(t, want.asked, w.inner.asked-asked, "call %d", i)
		var modes, allowed row
		for j := range asks {
			modes, allowed = append(modes, asks[j].Decision.Mode), append(allowed, asks[j].Decision.Allowed)
		}
		require.Equal(t, want.modes, modes, "call %d", i)
		require.Equal(t, want.allowed, allowed, "call %d", i)
		w.time++
	}

	first := func(c core.Charge) []core.Ask { return []core.Ask{asks[0], {Charges: []core.Charge{c}}} }
	negative, changed := charge("new", "k", perSecond(1), -1), charge("all", "", perSecond(5), 1)
	for _, list := range [][]core.Ask{nil, {}, {{}}, {asks[0], {}}, first(negative), first(changed), append(make([]core.Ask, 16), asks...)} {
		require.ErrorIs(t, w.store.Take(t.Context(), list), core.ErrCharges, "%d asks", len(list))
	}
}

// TestAsksOnOneKey has calls whose asks charge the same keys. They agree with a store
// that remembers nothing: what an earlier ask takes counts for the RetryAfter of a later
// one.
func TestAsksOnOneKey(t *testing.T) {
	race.Skip(t)
	remembered := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		w := newTwins()
		for step := range 200 {
			w.time += random.Int64N(300_000)
			asks := make([]core.Ask, 1+random.IntN(3))
			for i := range asks {
				asks[i].Charges = []core.Charge{
					charge("ip", fmt.Sprint(random.IntN(2)), perSecond(1), 1),
					charge("user", fmt.Sprint(random.IntN(2)), core.Quota{Limit: 3, Window: 4_000_000}, 1),
				}[random.IntN(2):]
			}
			plain := append([]core.Ask(nil), asks...)
			require.NoError(t, w.store.Take(t.Context(), asks))
			require.NoError(t, w.plain.Take(t.Context(), plain))
			for i := range asks {
				got, want := &asks[i].Decision, &plain[i].Decision
				require.Equal(t, want.Allowed, got.Allowed, "seed %d, step %d, ask %d", seed, step, i)
				require.Equal(t, want.RetryAfter(), got.RetryAfter(), "seed %d, step %d, ask %d", seed, step, i)
				if got.Mode == core.ModeRemembered {
					remembered++
				}
			}
		}
	}
	t.Logf("%d asks were refused from memory", remembered)
	require.Greater(t, remembered, 5000)
}
