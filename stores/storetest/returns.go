package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// returns tests which units can be given back.
func returns() []namedTest {
	return []namedTest{
		{"several at once", returnsSeveral},
		{"one after the other", returnsInOrder},
		{"in parts", returnsInParts},
		{"that overlap", returnsThatOverlap},
		{"of values", returnsValues},
		{"of nothing", returnsNothing},
	}
}

// returnsOf returns the returns of all that an admission took.
func returnsOf(charges []core.Charge, d core.Decision) []core.Return {
	list := make([]core.Return, len(charges))
	for i, c := range charges {
		list[i] = d.Return(i, c)
	}
	return list
}

func giveBack(t *testing.T, h Harness, policy string, returns ...core.Return) []int64 {
	t.Helper()
	given, err := Return(t.Context(), h.Store, policy, returns)
	require.NoError(t, err, "policy %q, returns %+v", policy, returns)
	require.Len(t, given, len(returns))
	return given
}

// returnsSeveral gives back to several rules at once, each for itself.
func returnsSeveral(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var all []core.Algorithm // those that give back any units, not only the last
	for _, a := range core.Algorithms() {
		if q := (core.Quota{Algorithm: a}); !q.Queues() && !q.Identified() && a.MaxLimit() >= 20 {
			all = append(all, a)
		}
	}
	var charges []core.Charge
	for i := range core.MaxCharges {
		q := plainQuota(all[i%len(all)], 20, hour)
		charges = append(charges, core.Charge{Rule: fmt.Sprint("r", i), Key: fmt.Sprint("k", i), Quota: q, Cost: int64(i) + 1})
	}
	list := returnsOf(charges, take(t, h, "policy", charges...))
	for i := range list {
		list[i].Cost = int64(i)
	}
	for i, given := range giveBack(t, h, "policy", list...) {
		assert.EqualValues(t, i, given, charges[i].Quota.Algorithm)
		assert.EqualValues(t, 19, remaining(t, h, charges[i]), charges[i].Quota.Algorithm)
	}
}

// returnsThatOverlap has callers take from a bucket at the same time and give it all back, in
// any order, as refused requests do in a set around the one that refuses.
func returnsThatOverlap(t *testing.T, h Harness) {
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket} {
		for _, callers := range []int{2, 4, 24} {
			m := newMirror(t, h, a.String(), uint64(a), callers)
			charge := core.Charge{Policy: m.policy, Rule: "r", Key: "k", Quota: plainQuota(a, 300, 60*sec), Cost: 1}
			for range 40 {
				m.pass(1)
				for keep := m.random.IntN(callers); len(m.loans) > keep; {
					i := m.random.IntN(len(m.loans))
					m.giveBack(m.loans[i]...)
					m.loans = slices.Delete(m.loans, i, i+1)
				}
				for m.pass(1); len(m.loans) < callers; {
					m.pass(m.random.Int64N(3_000) * m.random.Int64N(2))
					d := m.take(charge)
					require.LessOrEqual(t, 300-first(d).Remaining, int64(3*callers))
				}
			}
		}
	}
}

// returnsValues gives back a value that was new. One that another request has shown, before
// or since, stays.
func returnsValues(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	value := func(id uint64) []core.Charge {
		return []core.Charge{{Policy: "policy", Rule: "r", Key: "k", Quota: core.Quota{Algorithm: core.Distinct, Limit: 9, Window: hour}, Cost: 3, ID: id}}
	}
	show := func(id uint64) core.Return { return returnsOf(value(id), take(t, h, "policy", value(id)...))[0] }
	give := func(want int64, left int64, r core.Return) {
		t.Helper()
		assert.Equal(t, []int64{want}, giveBack(t, h, "policy", r))
		assert.Equal(t, left, remaining(t, h, value(0)[0]))
	}
	known, fresh := show(1), show(2)
	give(1, 8, fresh)
	give(0, 8, fresh)
	again := show(1)
	give(0, 8, again)
	give(0, 8, known)
	h.SetTime(starts[0] + sec)
	once, twice := show(3), show(3)
	h.SetTime(starts[0] + 2*sec)
	give(0, 7, once)
	give(0, 7, twice)
	asks := []core.Ask{{Charges: value(4)}, {Charges: value(4)}, {Charges: value(5)}}
	require.NoError(t, h.Store.Take(t.Context(), asks))
	for i, want := range []struct{ given, left int64 }{{0, 5}, {0, 5}, {1, 6}} {
		give(want.given, want.left, returnsOf(asks[i].Charges, asks[i].Decision)[0])
	}
	h.SetTime(starts[0] + hour)
	assert.EqualValues(t, 7, remaining(t, h, value(0)[0]))
}

// returnsNothing gives back units that were never taken: to an unknown key, or to
// the key of another rule or policy.
func returnsNothing(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	charge := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 2}
	taken := returnsOf([]core.Charge{charge}, take(t, h, "policy", charge))[0]
	otherKey, otherRule, earlier, nothing := taken, taken, taken, taken
	otherKey.Key, otherRule.Rule, nothing.Cost = "other", "other", 0
	earlier.At--
	for _, r := range []core.Return{otherKey, otherRule, earlier, nothing} {
		assert.Zero(t, giveBack(t, h, "policy", r)[0], "%+v", r)
	}
	assert.Zero(t, giveBack(t, h, "another policy", taken)[0])
	assert.NoError(t, Reset(t.Context(), h.Store, "policy", "r", "other"))
	assert.EqualValues(t, 1, remaining(t, h, charge))
}

// invalidReturns makes calls that every store must refuse, and checks that nothing
// changed.
func invalidReturns(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	charge := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 2}
	good := returnsOf([]core.Charge{charge}, take(t, h, "policy", charge))[0]
	with := func(change func(*core.Return)) []core.Return {
		bad := good
		bad.Rule = "bad"
		change(&bad)
		return []core.Return{good, bad}
	}
	for name, list := range map[string][]core.Return{
		"none":                 nil,
		"a negative number":    with(func(r *core.Return) { r.Cost = -1 }),
		"an enormous number":   with(func(r *core.Return) { r.Cost = core.MaxCost + 1 }),
		"a negative time":      with(func(r *core.Return) { r.At = -1 }),
		"an enormous time":     with(func(r *core.Return) { r.At = 1 << 62 }),
		"negative remaining":   with(func(r *core.Return) { r.Remaining = -1 }),
		"negative reset":       with(func(r *core.Return) { r.ResetAfter = -1 }),
		"no quota":             with(func(r *core.Return) { r.Quota = core.Quota{} }),
		"too many":             make([]core.Return, core.MaxCharges+1),
		"an unknown algorithm": with(func(r *core.Return) { r.Quota.Algorithm = 255 }),
	} {
		given, err := Return(t.Context(), h.Store, "policy", list)
		assert.ErrorIs(t, err, core.ErrCharges, name)
		assert.Nil(t, given, name)
	}
	assert.EqualValues(t, 1, remaining(t, h, charge))
}

// returnsInOrder gives back to one key in one call: as in several calls, one after the other.
func returnsInOrder(t *testing.T, h Harness) {
	type back struct{ of, units int64 } // the number of the admission, and what to give back of it
	bucket := core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: 2 * sec, Burst: 3}
	large := core.Quota{Algorithm: core.TokenBucket, Limit: 129, Window: day, Burst: 129}
	window := core.Quota{Algorithm: core.FixedWindow, Limit: 9, Window: hour}
	for name, test := range map[string]struct {
		quota core.Quota
		costs []int64 // of the admissions
		apart int64   // µs from one to the next
		after int64   // µs from the last until they are given back
		backs []back
		units []int64
	}{
		"more than an admission took":   {bucket, []int64{1, 2}, 0, 2*sec - 1, []back{{0, 2}, {1, 1}}, []int64{1, 1}},
		"one twice":                     {bucket, []int64{1, 1, 1}, 0, 10 * ms, []back{{1, 1}, {1, 1}}, []int64{1, 1}},
		"the first first":               {large, []int64{16, 1, 65, 1}, 0, 4 * hour, []back{{0, 1}, {3, 1}}, []int64{0, 1}},
		"the last first":                {large, []int64{16, 1, 65, 1}, 0, 4 * hour, []back{{3, 1}, {0, 1}}, []int64{1, 0}},
		"by turns":                      {window, []int64{2, 2}, 1, 0, []back{{0, 2}, {1, 2}, {0, 2}}, []int64{2, 2, 0}},
		"by turns, more than there was": {window, []int64{2, 1}, 1, 0, []back{{0, 2}, {1, 2}, {0, 2}}, []int64{2, 1, 0}},
	} {
		m := newMirror(t, h, name, 1, 1)
		m.begin()
		for _, cost := range test.costs {
			m.take(core.Charge{Policy: m.policy, Rule: "r", Key: "k", Quota: test.quota, Cost: cost})
			m.pass(test.apart)
		}
		m.pass(test.after - test.apart)
		var list []core.Return
		for _, b := range test.backs {
			r := m.loans[b.of][0]
			r.Cost = b.units
			list = append(list, r)
		}
		var units []int64
		for _, r := range m.giveBack(list...) {
			units = append(units, r.Units)
		}
		assert.Equal(t, test.units, units, name)
	}
}

// returnsInParts gives back what admissions of a bucket took unit by unit, in calls of one or more
// returns while time passes and others take.
func returnsInParts(t *testing.T, h Harness) {
	for seed := range 50 {
		m := newMirror(t, h, "parts", 1, seed)
		c := core.Charge{Policy: m.policy, Rule: "r", Key: "k", Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: sec, Burst: 100}}
		for step := range 60 {
			m.pass(m.random.Int64N(3) * (1 + m.random.Int64N(300*ms)))
			if step < 3 || m.random.IntN(4) == 0 {
				c.Cost = 1 + m.random.Int64N(8)
				m.take(c)
				continue
			}
			var list []core.Return
			for range 1 + m.random.IntN(2) {
				r := pick(m.random, m.loans)[0]
				r.Cost = 1
				list = append(list, r)
			}
			m.giveBack(list...)
		}
	}
}
