package storetest

import (
	"errors"
	"testing"

	"github.com/routelimit/limit/core"
)

// debts tests charges for what was used before.
func debts() []namedTest {
	return []namedTest{
		{"above the limit", debtsAbove},
		{"of their age", debtsOfAge},
		{"beside other charges", debtsBeside},
		{"of leases", debtsOfLeases},
		{"several in a call", debtsTogether},
	}
}

func first(d core.Decision) core.Outcome { return d.Outcomes()[0] }

func debt(q core.Quota, cost, age int64) core.Charge {
	return core.Charge{Rule: "r", Key: "k", Quota: q, Cost: cost, Debt: true, Age: age, ID: 1}
}

// debtsAbove owes more than the limit by each algorithm, as much as there can be too. A
// request that waits for RetryAfter is admitted, and none is earlier.
func debtsAbove(t *testing.T, h Harness) {
	for _, a := range core.Algorithms() {
		for _, cost := range []int64{3, 40, core.MaxCost} {
			q := plainQuota(a, 3, sec)
			owed := debt(q, cost, 0)
			owed.Key = a.String() + string(rune('a'+cost%26))
			h.SetTime(starts[0])
			d := take(t, h, "policy", owed)
			o := d.Outcomes()[0]
			if !d.Allowed || !o.Fits() || d.Delay != 0 || a != core.Distinct && (o.Remaining > q.Capacity()-min(cost, q.Capacity()) || o.MoreAfter <= 0) {
				t.Fatalf("%v: a debt of %d: %+v", a, cost, d)
			}
			later := owed
			later.Debt, later.Cost, later.ID = false, max(1, q.Capacity()), 2
			refused := first(take(t, h, "policy", later))
			if refused.Fits() || refused.RetryAfter <= 0 {
				if a == core.Distinct && q.Limit > 1 {
					continue // one value
				}
				t.Fatalf("%v: after a debt of %d: %+v", a, cost, refused)
			}
			h.SetTime(starts[0] + refused.RetryAfter - 1)
			if early := take(t, h, "policy", later); early.Allowed {
				t.Errorf("%v: %+v is admitted before RetryAfter", a, refused)
			}
			h.SetTime(starts[0] + refused.RetryAfter)
			if now := take(t, h, "policy", later); !now.Allowed {
				t.Errorf("%v: %+v is refused after RetryAfter: %+v", a, refused, now)
			}
		}
	}
}

// debtsOfAge owes units that count from the time of their use on.
func debtsOfAge(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	q := core.Quota{Limit: 3, Window: sec}
	for _, step := range []struct{ cost, age, remaining, more, reset int64 }{
		{1, 400 * ms, 2, 600 * ms, 600 * ms},
		{5, sec, 2, 600 * ms, 600 * ms}, // they have left the window
		{5, core.MaxTime, 2, 600 * ms, 600 * ms},
		{1, 700 * ms, 1, 300 * ms, 600 * ms},
		{0, 100 * ms, 1, 300 * ms, 600 * ms},
		{2, 100 * ms, 0, 600 * ms, 900 * ms}, // the oldest is above the limit
	} {
		o := first(take(t, h, "policy", debt(q, step.cost, step.age)))
		if want := (core.Outcome{Remaining: step.remaining, MoreAfter: step.more, ResetAfter: step.reset}); o != want {
			t.Errorf("%+v: %+v, want %+v", step, o, want)
		}
	}
	bucket := core.Quota{Algorithm: core.TokenBucket, Limit: 10, Window: sec, Burst: 5}
	for _, step := range [][3]int64{{4, 300 * ms, 4}, {8, 200 * ms, -4}, {1, 0, -5}} { // 100 ms a token
		c := debt(bucket, step[0], step[1])
		c.Key = "bucket"
		o := first(take(t, h, "policy", c))
		if o.Remaining != max(0, step[2]) || o.ResetAfter != (5-step[2])*100*ms {
			t.Errorf("%v: %+v", step, o)
		}
	}
}

// debtsBeside has debts and other charges in a call.
func debtsBeside(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	owed := debt(core.Quota{Limit: 3, Window: sec}, 1, 0)
	other := owed
	other.Rule, other.Debt = "other", false
	old, reserved := other, owed
	old.Age, reserved.Reserve = 1, 1
	for name, asks := range map[string][]core.Ask{
		"an ask": {askFor(owed, other)}, "two asks": {askFor(owed), askFor(other)}, "an age": {askFor(old)}, "a reserve": {askFor(reserved)},
	} {
		if err := h.Store.Take(t.Context(), asks); !errors.Is(err, core.ErrCharges) {
			t.Errorf("%s: error is %v, want core.ErrCharges", name, err)
		}
	}
	if o := first(take(t, h, "", owed)); o.Remaining != 2 {
		t.Errorf("%+v", o)
	}
}

// debtsOfLeases adopts leases, above the limit too, and one of them twice.
func debtsOfLeases(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	q := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: sec}
	var charges []core.Charge
	for _, id := range []uint64{1, 2, 3, 3} {
		c := debt(q, 1, 200*ms)
		c.Policy, c.ID = "policy", id
		take(t, h, "policy", c)
		charges = append(charges, c)
	}
	c := charges[0]
	c.Debt, c.Age, c.ID = false, 0, 9
	if o := first(take(t, h, "policy", c)); o.RetryAfter != 800*ms {
		t.Errorf("%+v, want RetryAfter 800ms", o)
	}
	held, err := h.Store.Renew(t.Context(), charges)
	if err != nil || !held[0] || !held[1] || !held[2] {
		t.Errorf("held %v, %v", held, err)
	}
	if err := h.Store.Release(t.Context(), charges[:2]); err != nil {
		t.Error(err)
	}
	if o := first(take(t, h, "policy", c)); !o.Fits() || o.Remaining != 0 {
		t.Errorf("%+v, want one unit", o)
	}
}

// debtsTogether owes on one key twice, and on others, in a call.
func debtsTogether(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	q := core.Quota{Limit: 9, Window: sec}
	one, two := debt(q, 2, 0), debt(q, 3, 500*ms)
	two.Rule = "s"
	got := takeAll(t, h, askFor(one, two), askFor(two), askFor(one))
	for i, want := range [][]int64{{7, 6}, {3}, {5}} {
		if !got[i].Decision.Allowed || len(got[i].Decision.Outcomes()) != len(want) {
			t.Fatalf("ask %d: %+v", i, got[i].Decision)
		}
		for j, o := range got[i].Decision.Outcomes() {
			if o.Remaining != want[j] {
				t.Errorf("ask %d: %+v, want %d", i, o, want[j])
			}
		}
	}
}
