package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
)

// returns tests which units can be given back.
func returns() []namedTest {
	return []namedTest{
		{"several at once", returnsSeveral},
		{"of nothing", returnsNothing},
		{"invalid", returnsInvalid},
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
	if err != nil {
		t.Fatalf("policy %q, returns %+v: %v", policy, returns, err)
	}
	if len(given) != len(returns) {
		t.Fatalf("%d answers to %d returns", len(given), len(returns))
	}
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
		if given != int64(i) {
			t.Errorf("%v: %d given back, want %d", charges[i].Quota.Algorithm, given, i)
		}
		charges[i].Cost = 0
	}
	d := take(t, h, "policy", charges...)
	for i, o := range d.Outcomes() {
		if o.Remaining != 19 {
			t.Errorf("%v: %d remain, want 19", charges[i].Quota.Algorithm, o.Remaining)
		}
	}
}

// returnsNothing gives back units that were never taken: to an unknown key, or to
// the key of another rule or policy.
func returnsNothing(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	charge := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 2}
	r := returnsOf([]core.Charge{charge}, take(t, h, "policy", charge))[0]
	for name, change := range map[string]func(r *core.Return) string{
		"another key":    func(r *core.Return) string { r.Key = "other"; return "policy" },
		"another rule":   func(r *core.Return) string { r.Rule = "other"; return "policy" },
		"another policy": func(*core.Return) string { return "other" },
		"another time":   func(r *core.Return) string { r.At--; return "policy" },
		"no units":       func(r *core.Return) string { r.Cost = 0; return "policy" },
	} {
		other := r
		if given := giveBack(t, h, change(&other), other); given[0] != 0 {
			t.Errorf("%s: %d given back", name, given[0])
		}
	}
	if err := Reset(t.Context(), h.Store, "policy", "r", "other"); err != nil {
		t.Error(err)
	}
	charge.Cost = 0
	d := take(t, h, "policy", charge)
	if got := d.Outcomes()[0].Remaining; got != 1 {
		t.Errorf("%d remain, want 1", got)
	}
}

// returnsInvalid makes calls that every store must refuse, and checks that nothing
// changed.
func returnsInvalid(t *testing.T, h Harness) {
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
		if given, err := Return(t.Context(), h.Store, "policy", list); !errors.Is(err, core.ErrCharges) || given != nil {
			t.Errorf("%s: given %v, error is %v, want core.ErrCharges", name, given, err)
		}
	}
	charge.Cost = 0
	d := take(t, h, "policy", charge)
	if got := d.Outcomes()[0].Remaining; got != 1 {
		t.Errorf("%d remain, want 1", got)
	}
}
