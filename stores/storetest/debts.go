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
		{"beside other charges", debtsBeside},
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
