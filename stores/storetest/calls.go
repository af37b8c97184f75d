package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// calls tests which calls a store refuses to decide, and that it changes neither
// charges nor earlier decisions.
func calls() []namedTest {
	tests := []namedTest{
		{"charges are left as they are", leavesCharges},
		{"decisions are left as they are", leavesDecisions},
	}
	good := core.Quota{Limit: 3, Window: sec}
	charge := func(rule string, cost int64, quota core.Quota) core.Charge {
		return core.Charge{Rule: rule, Key: "k", Quota: quota, Cost: cost}
	}
	many := make([]core.Charge, core.MaxCharges+1)
	for i := range many {
		many[i] = charge(fmt.Sprint("r", i), 1, good)
	}
	for _, invalid := range []struct {
		name    string
		charges []core.Charge
	}{
		{"no charges", nil},
		{"too many charges", many},
		{"a negative cost", []core.Charge{charge("r0", 1, good), charge("r1", -1, good)}},
		{"an enormous cost", []core.Charge{charge("r0", 1, good), charge("r1", core.MaxCost+1, good)}},
		{"a negative reserve", []core.Charge{charge("r0", 1, good), {Rule: "r1", Quota: good, Cost: 1, Reserve: -1}}},
		{"an enormous reserve", []core.Charge{charge("r0", 1, good), {Rule: "r1", Quota: good, Cost: 1, Reserve: core.MaxCost + 1}}},
		{"a rule twice", []core.Charge{charge("r0", 1, good), charge("r1", 1, good), charge("r0", 1, good)}},
		{"no quota", []core.Charge{charge("r0", 1, good), charge("r1", 1, core.Quota{})}},
		{"no limit", []core.Charge{charge("r0", 1, good), charge("r1", 1, core.Quota{Window: sec})}},
		{"an enormous limit", []core.Charge{charge("r0", 1, good), charge("r1", 1, core.Quota{Limit: core.MaxLog + 1, Window: sec})}},
		{"a short window", []core.Charge{charge("r0", 1, good), charge("r1", 1, core.Quota{Limit: 1, Window: core.MinWindow - 1})}},
		{"a long window", []core.Charge{charge("r0", 1, good), charge("r1", 1, core.Quota{Limit: 1, Window: core.MaxWindow + 1})}},
		{"an unknown algorithm", []core.Charge{charge("r0", 1, good), charge("r1", 1, core.Quota{Algorithm: 255, Limit: 1, Window: sec})}},
	} {
		tests = append(tests, namedTest{invalid.name, func(t *testing.T, h Harness) {
			undecided(t, h, invalid.charges, charge("r0", 0, good))
		}})
	}
	return tests
}

// undecided makes an invalid call, and then looks for traces of it.
func undecided(t *testing.T, h Harness, invalid []core.Charge, look core.Charge) {
	t.Helper()
	h.SetTime(starts[0])
	d, err := Take(t.Context(), h.Store, "policy", invalid)
	if !errors.Is(err, core.ErrCharges) {
		t.Errorf("error is %v, want core.ErrCharges", err)
	}
	if d.Allowed {
		t.Error("allowed")
	}
	d = take(t, h, "policy", look)
	if got := d.Outcomes()[0].Remaining; got != look.Quota.Limit {
		t.Errorf("remaining is %d after an invalid call, want %d", got, look.Quota.Limit)
	}
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
		if err := h.Store.Take(t.Context(), []core.Ask{{Charges: charges}}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(charges, before) {
			t.Fatalf("charges became %+v, were %+v", charges, before)
		}
	}
	// The caller may use its slice again.
	clear(charges)
	d := take(t, h, "", before...)
	if d.Allowed || d.Outcomes()[0].Remaining != 1 || d.Outcomes()[1].Remaining != 0 {
		t.Errorf("after the charges were cleared: %+v", d.Outcomes())
	}
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
	if !slices.Equal(first.Outcomes(), before) {
		t.Error("a later decision has changed an earlier one")
	}
}
