package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// debtsAbove owes more than the limit by each algorithm, as much as there can be too. A
// request that waits for RetryAfter is admitted, and none is earlier.
func debtsAbove(t *testing.T, h Harness) {
	for _, a := range core.Algorithms() {
		for _, cost := range []int64{3, 40, core.MaxCost} {
			q := plainQuota(a, 3, sec)
			owed := core.Charge{Rule: "r", Key: a.String() + string(rune('a'+cost%26)), Quota: q, Cost: cost, Debt: true, ID: 1}
			h.SetTime(starts[0])
			d := take(t, h, "policy", owed)
			o := first(d)
			require.True(t, d.Allowed && o.Fits() && d.Delay == 0, "%v: a debt of %d: %+v", a, cost, d)
			if a != core.Distinct {
				require.LessOrEqual(t, o.Remaining, max(0, q.Capacity()-cost), "%v: a debt of %d", a, cost)
				require.Positive(t, o.MoreAfter, "%v: a debt of %d", a, cost)
			}
			later := owed
			later.Debt, later.Cost, later.ID = false, max(1, q.Capacity()), 2
			refused := first(take(t, h, "policy", later))
			if a == core.Distinct && q.Limit > 1 && refused.Fits() {
				continue // one value
			}
			require.Positive(t, refused.RetryAfter, "%v: after a debt of %d: %+v", a, cost, refused)
			h.SetTime(starts[0] + refused.RetryAfter - 1)
			assert.False(t, take(t, h, "policy", later).Allowed, "%v: %+v is admitted before RetryAfter", a, refused)
			h.SetTime(starts[0] + refused.RetryAfter)
			assert.True(t, take(t, h, "policy", later).Allowed, "%v: %+v is refused after RetryAfter", a, refused)
		}
	}
}
