package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// calls tests which calls a store refuses to decide, and that it changes neither
// charges nor earlier decisions.
func calls() []namedTest {
	tests := []namedTest{
		{"charges are left as they are", leavesCharges},
		{"decisions are left as they are", leavesDecisions},
		{"invalid asks", invalidAsks},
		{"invalid leases", invalidLeases},
		{"invalid returns", invalidReturns},
		{"resets of several keys", resets},
	}
	good := core.Quota{Limit: 3, Window: sec}
	charge := func(rule string, cost int64, quota core.Quota) core.Charge {
		return core.Charge{Rule: rule, Key: "k", Quota: quota, Cost: cost}
	}
	many := make([]core.Charge, core.MaxCharges+1)
	for i := range many {
		many[i] = charge(fmt.Sprint("r", i), 1, good)
	}
	behind := func(bad core.Charge) []core.Charge { return []core.Charge{charge("r0", 1, good), bad} }
	reserve := func(n int64) core.Charge { return core.Charge{Rule: "r1", Quota: good, Cost: 1, Reserve: n} }
	debt := charge("r1", 1, good)
	debt.Debt = true
	old, reserved := charge("r1", 1, good), debt
	old.Age, reserved.Reserve = 1, 1
	for _, invalid := range []struct {
		name    string
		charges []core.Charge
	}{
		{"no charges", nil},
		{"too many charges", many},
		{"a negative cost", behind(charge("r1", -1, good))},
		{"an enormous cost", behind(charge("r1", core.MaxCost+1, good))},
		{"a negative reserve", behind(reserve(-1))},
		{"an enormous reserve", behind(reserve(core.MaxCost + 1))},
		{"a rule twice", []core.Charge{charge("r0", 1, good), charge("r1", 1, good), charge("r0", 1, good)}},
		{"no quota", behind(charge("r1", 1, core.Quota{}))},
		{"no limit", behind(charge("r1", 1, core.Quota{Window: sec}))},
		{"an enormous limit", behind(charge("r1", 1, core.Quota{Limit: core.MaxLog + 1, Window: sec}))},
		{"a short window", behind(charge("r1", 1, core.Quota{Limit: 1, Window: core.MinWindow - 1}))},
		{"a long window", behind(charge("r1", 1, core.Quota{Limit: 1, Window: core.MaxWindow + 1}))},
		{"an unknown algorithm", behind(charge("r1", 1, core.Quota{Algorithm: 255, Limit: 1, Window: sec}))},
		{"a lease without an id", behind(charge("r1", 1, core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: sec}))},
		{"a debt beside another charge", behind(debt)},
		{"an age without a debt", behind(old)},
		{"a debt with a reserve", []core.Charge{reserved}},
	} {
		tests = append(tests, namedTest{invalid.name, func(t *testing.T, h Harness) {
			h.SetTime(starts[0])
			d, err := Take(t.Context(), h.Store, "policy", invalid.charges)
			assert.ErrorIs(t, err, core.ErrCharges)
			assert.False(t, d.Allowed)
			for _, rule := range []string{"r0", "r1"} {
				assert.Equal(t, good.Limit, remaining(t, h, charge(rule, 0, good)), "remaining of %s after an invalid call", rule)
			}
		}})
	}
	return tests
}

func leavesCharges(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Limit: 2, Window: sec}
	charges := []core.Charge{
		{Rule: "b", Key: "2", Quota: quota, Cost: 1},
		{Rule: "a", Key: "1", Quota: quota, Cost: 2},
	}
	before := slices.Clone(charges)
	for range 2 {
		require.NoError(t, h.Store.Take(t.Context(), []core.Ask{{Charges: charges}}))
		require.Equal(t, before, charges)
	}
	clear(charges) // the caller may use its slice again
	d := take(t, h, "", before...)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 1, d.Outcomes()[0].Remaining)
	assert.Zero(t, d.Outcomes()[1].Remaining)
}

func leavesDecisions(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var charges []core.Charge
	for i := range core.MaxCharges {
		quota := core.Quota{Limit: int64(i) + 1, Window: sec}
		charges = append(charges, core.Charge{Rule: fmt.Sprint("r", i), Quota: quota, Cost: 1})
	}
	first := take(t, h, "policy", charges...)
	before := slices.Clone(first.Outcomes())
	take(t, h, "policy", charges...)
	assert.Equal(t, before, first.Outcomes(), "a later decision has changed an earlier one")
}

func takeAll(t *testing.T, h Harness, asks ...core.Ask) []core.Ask {
	t.Helper()
	require.NoError(t, h.Store.Take(t.Context(), asks), "asks %+v", asks)
	return asks
}

func askFor(charges ...core.Charge) core.Ask { return core.Ask{Charges: charges} }

// reservesOfAsks has asks on one key that leave different numbers of units to others.
func reservesOfAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	with := func(reserve int64) core.Ask {
		return askFor(core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 1, Reserve: reserve})
	}
	for i, ask := range takeAll(t, h, with(2), with(2), with(1), with(1), with(0), with(0)) {
		assert.Equal(t, i%2 == 0, ask.Decision.Allowed, "ask %d", i)
	}
}

// invalidAsks makes calls that a store must refuse, and checks that nothing was taken.
func invalidAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	good := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 1}
	other, bad := good, good
	other.Quota.Limit, bad.Cost = 4, -1
	debt := core.Charge{Rule: "debt", Quota: good.Quota, Cost: 1, Debt: true}
	many := make([]core.Ask, core.MaxCharges+1)
	for i := range many {
		many[i] = askFor(good)
	}
	for name, asks := range map[string][]core.Ask{
		"none": nil, "no charges": {askFor(good), askFor()}, "too many": many, "a negative cost": {askFor(good), askFor(bad)},
		"two quotas": {askFor(good), askFor(other)}, "a debt beside another charge": {askFor(good), askFor(debt)}, "a rule twice": {askFor(good), askFor(good, good)},
	} {
		assert.ErrorIs(t, h.Store.Take(t.Context(), asks), core.ErrCharges, name)
	}
	assert.EqualValues(t, 2, first(takeAll(t, h, askFor(good))[0].Decision).Remaining, "after invalid calls")
}

// manyAsks has as many asks as there can be.
func manyAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var list []core.Ask
	for i := range core.MaxCharges {
		list = append(list, askFor(core.Charge{Rule: fmt.Sprint("r", i/2), Key: fmt.Sprint(i / 4), Quota: core.Quota{Limit: 1, Window: sec}, Cost: 1}))
	}
	for i, ask := range takeAll(t, h, list...) {
		assert.Equal(t, i%2 == 0, ask.Decision.Allowed, "ask %d", i)
		assert.Len(t, ask.Decision.Outcomes(), 1, "ask %d", i)
	}
}

// resets has one call forget several keys, and rejects a call of none or of too many.
func resets(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var charges []core.Charge
	for _, key := range []string{"", "a", "b", "c"} {
		charges = append(charges, core.Charge{Policy: "policy", Rule: "r", Key: key, Quota: core.Quota{Limit: 2, Window: sec}, Cost: 1})
		take(t, h, "policy", charges[len(charges)-1])
	}
	left := func(wants ...int64) {
		t.Helper()
		for i, want := range wants {
			assert.Equal(t, want, remaining(t, h, charges[i]), "remaining of key %q", charges[i].Key)
		}
	}
	assert.ErrorIs(t, h.Store.Reset(t.Context(), nil), core.ErrCharges)
	assert.ErrorIs(t, h.Store.Reset(t.Context(), slices.Repeat(charges, core.MaxCharges)), core.ErrCharges)
	left(1, 1, 1, 1)
	assert.NoError(t, h.Store.Reset(t.Context(), charges[:3]))
	left(2, 2, 2, 1)
}
