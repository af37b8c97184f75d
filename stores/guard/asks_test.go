package guard

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/storetest"
)

func leftOf(t *testing.T, s core.Store, c core.Charge) int64 {
	t.Helper()
	c.Cost = 0
	d := storetest.MustTake(t, s, c)
	return d.Outcomes()[0].Remaining
}

// TestAsksAreIndependent has requests of a rule that decides and one that watches, while
// the store works, fails and comes back. The rule that watches is decided as if it were
// the only one, whatever becomes of the other.
func TestAsksAreIndependent(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		instances := 1 + int(seed%2)
		on := []core.OnError{core.Local, core.Allow, core.Refuse}[random.IntN(3)]
		both, f, now := guarded(instances, sec)
		one, g, alone := guarded(instances, sec)
		deciding := storetest.Of("p", charge("first", 2, core.Local))
		watching := storetest.Of("p", charge("watched", 8, on))
		for step := range 60 {
			switch random.IntN(8) {
			case 0:
				f.fail(errDown)
				g.fail(errDown)
			case 1:
				f.fail(nil)
				g.fail(nil)
			case 2:
				passed := random.Int64N(5 * sec)
				now.Add(passed)
				alone.Add(passed)
			}
			asks := []core.Ask{{Charges: deciding}, {Charges: watching}}
			require.NoError(t, both.Take(t.Context(), asks))
			want := must.Get(core.Take(t.Context(), one, watching))(t)
			// A breaker that has seen one more failure opens earlier.
			if asks[1].Decision.Mode != want.Mode {
				break
			}
			got := asks[1].Decision
			require.Equal(t, want.Allowed, got.Allowed, "seed %d, step %d: %v", seed, step, want.Mode)
			require.Equal(t, want.Outcomes()[0].Remaining, got.Outcomes()[0].Remaining, "seed %d, step %d: %v", seed, step, want.Mode)
		}
	}
}

// TestAsksShareACall holds that several asks are one call of a store that works, and that
// each is counted in memory, for an outage to begin with.
func TestAsksShareACall(t *testing.T) {
	for _, instances := range []int{1, 2} {
		s, f, _ := guarded(instances, sec)
		calls := 0
		f.first = func() { calls++ }
		asks := []core.Ask{{Charges: storetest.Of("p", charge("first", 2, core.Local))}, {Charges: storetest.Of("p", charge("watched", 8, core.Local))}}
		for i := range 3 {
			require.NoError(t, s.Take(t.Context(), asks))
			require.Equal(t, i < 2, asks[0].Decision.Allowed)
			require.True(t, asks[1].Decision.Allowed)
		}
		assert.Equal(t, 3, calls)
		own := asks[1].Charges[0]
		own.Quota = own.Quota.Share(int64(instances))
		assert.EqualValues(t, own.Quota.Limit-3, leftOf(t, s.own, own))
		f.fail(errDown)
		require.NoError(t, s.Take(t.Context(), asks))
		assert.Equal(t, core.ModeLocal, asks[1].Decision.Mode)
		assert.Equal(t, max(0, own.Quota.Limit-4), asks[1].Decision.Outcomes()[0].Remaining, "three were counted before the outage")
	}
}

// TestAsksInOverflow has keys share overflow quotas, beside a rule that has its own.
func TestAsksInOverflow(t *testing.T) {
	s, f := full(t, new(atomic.Int64))
	q := core.Quota{Limit: 4, Window: hour}
	watched := core.Charge{Policy: "p", Rule: "watched", Quota: core.Quota{Limit: 100, Window: hour}, Cost: 1}
	for i := range 6 {
		asks := []core.Ask{{Charges: []core.Charge{{Policy: "p", Rule: "r", Key: "new", Quota: q, Cost: 1}}}, {Charges: []core.Charge{watched}}}
		require.NoError(t, s.Take(t.Context(), asks))
		require.Equal(t, i < 4, asks[0].Decision.Allowed)
		require.True(t, asks[1].Decision.Allowed)
		require.EqualValues(t, 99-i, asks[1].Decision.Outcomes()[0].Remaining)
	}
	assert.EqualValues(t, 94, leftOf(t, f.Store, watched), "each counts once")
}
