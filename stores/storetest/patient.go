package storetest

import (
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
)

// patient has clients of a bucket that begins empty. They wait for RetryAfter or
// longer, and each is refused only once.
func patient(t *testing.T, h Harness) {
	for _, c := range []struct {
		quota core.Quota
		every int64 // the least time between two requests
	}{
		{core.Quota{Algorithm: core.TokenBucket, Limit: 100, Window: sec, Burst: 20, Missing: 20}, 0},
		{core.Quota{Algorithm: core.TokenBucket, Limit: 100, Window: sec, Burst: 20, Missing: 20}, sec},
		{core.Quota{Algorithm: core.TokenBucket, Limit: 10, Window: sec, Burst: 5, Missing: 5}, 1_500 * ms},
		{core.Quota{Algorithm: core.TokenBucket, Limit: 10, Window: sec, Burst: 5, Missing: 5}, hour},
	} {
		now := starts[0]
		charge := core.Charge{Rule: "r", Key: fmt.Sprint("k", c.quota.Limit, c.every), Quota: c.quota, Cost: 1}
		for request := range 8 {
			h.SetTime(now)
			d := take(t, h, "patient", charge)
			if d.Allowed != (request > 0) {
				t.Errorf("%s every %v, request %d: allowed is %v", describe(charge), micros(c.every), request, d.Allowed)
			}
			wait := max(c.every, d.RetryAfter(), d.Outcomes()[0].MoreAfter)
			if now += wait; h.Elapse != nil {
				h.SetTime(now)
				h.Elapse(wait)
			}
		}
	}
}
