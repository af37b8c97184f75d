package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// Times has random versions of a rule, with other limits and windows, charge one key of
// the algorithms that list times, while the key lives and after it has expired. It compares
// what the store decides with package core, n times.
func Times(t *testing.T, h Harness, n int) {
	require.NotNil(t, h.Elapse, "keys must expire")
	forms := []core.Algorithm{core.SlidingLog, core.SlidingLog, core.Distinct, core.Ban, core.Concurrency}
	for i := range n {
		random := rand.New(rand.NewPCG(29, uint64(i)))
		l := &lifeOfVersions{T: t, h: h, random: random, now: starts[0], charge: core.Charge{Policy: "times", Rule: fmt.Sprint(i), Key: "k"}}
		a := forms[i%len(forms)]
		l.state = core.NewState(a)
		for range 2 + random.IntN(2) {
			q := plainQuota(a, pick(random, []int64{1, 2, 3, 5, 8, 30, 100, 127, 128, 129, 200, 300}),
				pick(random, []int64{ms, 1_500, 10 * ms, sec, 10 * sec, 1<<32 - 1, 1 << 32, 72 * 60 * sec, day}))
			if q.Bars() {
				q.Bar, q.MaxBar = pick(random, someWindows), 0
				q.MaxBar = pick(random, []int64{0, q.Bar, 3 * q.Bar})
			}
			l.versions = append(l.versions, q)
		}
		h.SetTime(l.now)
		h.Elapse(0)
		for range 60 {
			l.step()
		}
	}
}

type lifeOfVersions struct {
	*testing.T
	h        Harness
	random   *rand.Rand
	charge   core.Charge
	versions []core.Quota
	state    core.State
	now      int64
	loans    []core.Return
	retry    int64
}

func (l *lifeOfVersions) step() {
	random, c := l.random, l.charge
	c.Quota = pick(random, l.versions)
	q := c.Quota
	step := pick(random, []int64{0, 0, 1, ms, q.Window / 3, q.Window - 1, q.Window, random.Int64N(q.Window), random.Int64N(20 * ms), l.retry, 40 * day})
	l.now += step
	l.h.SetTime(l.now)
	l.h.Elapse(step)
	c.ID, c.Cost = 1+random.Uint64N(10), 1
	switch random.IntN(8) {
	case 0:
		c.Cost, c.ID = 0, 0
	case 1:
		c.Cost = 1 + random.Int64N(q.Limit)
	case 2, 3:
		c.Cost = max(1, l.state.Clone().Advance(&q, l.now)) // what is left
	case 4:
		c.Debt, c.Cost = true, 1+random.Int64N(q.Limit+3)
		drawMaxDebt(random, &c)
		if !q.Bars() { // a store may have forgotten the strikes of then
			c.Age = pick(random, []int64{0, 1, random.Int64N(q.Window), q.Window, 2 * q.Window})
		}
	case 5:
		l.after(c)
		return
	}
	want := core.Decide(l.now, []core.Charge{c}, []core.State{l.state})
	got, err := core.Take(l.Context(), l.h.Store, []core.Charge{c})
	require.NoError(l, err)
	require.Equal(l, want, got, "%+v at %d: %+v of %+v", c, l.now, l.versions, l.state)
	l.retry = max(0, got.RetryAfter())
	if got.Allowed && !c.Debt && c.Cost > 0 {
		l.loans = append(l.loans, got.Return(0, c))
	}
}

// after gives back what another version may have admitted, or renews or releases it.
func (l *lifeOfVersions) after(c core.Charge) {
	if len(l.loans) == 0 {
		return
	}
	i := l.random.IntN(len(l.loans))
	r := l.loans[i]
	l.loans = slices.Delete(l.loans, i, i+1)
	r.Quota, c.ID, c.Cost = c.Quota, r.ID, 1
	switch {
	case l.random.IntN(10) == 0:
		require.NoError(l, l.h.Store.Reset(l.Context(), []core.Charge{c}))
		l.state, l.loans = core.NewState(c.Quota.Algorithm), nil
	case !c.Quota.Leases():
		want := l.state.Return(&r, l.now)
		got, err := l.h.Store.Return(l.Context(), []core.Return{r})
		require.NoError(l, err)
		require.Equal(l, want, got[0].Units, "%+v at %d of %+v", r, l.now, l.state)
		require.Equal(l, core.Look(l.now, r.Charge, l.state), got[0].Outcome, "%+v at %d of %+v", r, l.now, l.state)
	case l.random.IntN(2) == 0:
		want := l.state.Renew(&c.Quota, l.now, c.ID)
		got, err := l.h.Store.Renew(l.Context(), []core.Charge{c})
		require.NoError(l, err)
		require.Equal(l, []bool{want}, got)
		l.loans = append(l.loans, r)
	default:
		l.state.Release(&c.Quota, l.now, c.ID)
		require.NoError(l, l.h.Store.Release(l.Context(), []core.Charge{c}))
	}
}
