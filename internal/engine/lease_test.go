package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

// planOf returns a plan of rules on a memory store, and the terms of its callers.
func planOf(rules ...Rule) *Plan {
	e := &Engine{Store: memstore.New(nil), InMemory: true}
	terms := &Terms{}
	for i := range rules {
		q := &rules[i].Charge.Quota
		terms.Quotas, terms.Variants = append(terms.Quotas, *q), append(terms.Variants, "")
		terms.Capacities = append(terms.Capacities, q.Capacity())
	}
	return e.NewPlan(rules, terms, false)
}

// decide decides a request that costs each rule so much.
func (p *Plan) decide(t *testing.T, cost int64) (d Decision) {
	t.Helper()
	r := p.Begin()
	defer r.End()
	for i := range r.Charges {
		r.Charges[i].Cost = cost
	}
	require.NoError(t, r.Decide(t.Context(), context.Background(), &d))
	return d
}

// closed reports whether a loss has been told by now.
func closed(lost <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

// TestLostByPause has a process stand still for longer than a lease lives. When it
// goes on, either its timer comes first or the end of its request.
func TestLostByPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := planOf(Rule{Charge: core.Charge{Policy: "p", Rule: "r",
			Quota: core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 3_000_000}}})
		for _, first := range []string{"timer", "release"} {
			d := p.decide(t, 1)
			var loss error
			d.OnLoss(nil, func(err error) { loss = err })
			p.renewals.timer.Stop()
			time.Sleep(9 * time.Second)
			assert.False(t, closed(d.Lost()))
			if first == "timer" {
				p.renewals.timer.Reset(0)
				assert.True(t, closed(d.Lost()))
			}
			d.Release()
			assert.True(t, closed(d.Lost()))
			require.ErrorIs(t, loss, ErrLeaseLost, first)
		}
	})
}

// TestSettleWatching settles decisions with rules that only watch: what they took is
// corrected too, and a request that is refused after all does not get it back.
func TestSettleWatching(t *testing.T) {
	quota := core.Quota{Limit: 10, Window: time.Hour.Microseconds()}
	rules := []Rule{
		{Charge: core.Charge{Policy: "p", Rule: "enforced", Quota: quota}, Settles: true},
		{Charge: core.Charge{Policy: "p", Rule: "watched", Quota: quota}, Settles: true, Watches: true},
		{Charge: core.Charge{Policy: "p", Rule: "narrow", Quota: core.Quota{Limit: 3, Window: quota.Window}}, Settles: true, Watches: true},
	}
	settle := func(n int64) func(*Decision) {
		return func(d *Decision) {
			must.Get(d.Settle(t.Context(), false, func(int, int64) int64 { return n }))(t)
		}
	}
	for name, row := range map[string]struct {
		settle func(*Decision)
		left   [3]int64
	}{
		"given back":   {func(d *Decision) { d.taken.giveBack() }, [3]int64{10, 6, 3}},
		"settled less": {settle(1), [3]int64{9, 9, 3}},
		"settled more": {settle(20), [3]int64{0, 0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			p := planOf(rules...)
			d := p.decide(t, 4)
			require.True(t, d.Allowed)
			require.Len(t, d.taken.units, 2, "the third was not taken")
			row.settle(&d)
			left := p.decide(t, 0)
			for i, o := range left.Outcomes() {
				assert.Equal(t, row.left[i], o.Remaining, rules[i].Charge.Rule)
			}
		})
	}
}
