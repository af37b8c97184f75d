package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// algorithms tests what random schedules of an algorithm do not: clients that wait, a
// changed window, and queues side by side on a store that spreads.
func algorithms() []namedTest {
	long := by("a", core.Quota{Algorithm: core.SlidingCells, Limit: 10, Window: 10 * sec, Cells: 10})
	brief := by("a", core.Quota{Algorithm: core.SlidingCells, Limit: 10, Window: 100 * ms, Cells: 10})
	two := by("a", core.Quota{Algorithm: core.Queue, Limit: 2, Window: 10 * ms, Burst: 2})
	slow := by("b", core.Quota{Algorithm: core.Queue, Limit: 1, Window: 10 * ms, Burst: 5})
	changed := script{"cells of a changed window", []row{
		at(sec-1, long(3, fits(7, 10*sec+1, 10*sec+1))), // the end of a cell
		at(sec, long(2, fits(5, 10*sec, 11*sec))),       // the beginning of the next
		at(1_050*ms, brief(0, fits(5, 50*ms, 110*ms))),
		at(1_100*ms, brief(0, fits(8, 60*ms, 60*ms))),
		at(1_160*ms, brief(10, fits(0, 110*ms, 110*ms))),
	}}
	return append(scripts([]script{
		{"two queues", []row{
			at(0, two(1, fits(2, 5*ms, 5*ms)), slow(1, fits(5, 10*ms, 10*ms))),
			at(0, two(1, fits(1, 5*ms, 10*ms)), slow(1, fits(4, 10*ms, 20*ms))).delayed(10 * ms),
			at(0, two(2, short(1, 5*ms, 10*ms)), slow(1, fits(4, 10*ms, 20*ms))), // a refusal waits for nothing
			at(0, two(1, fits(0, 5*ms, 15*ms)), slow(0, fits(4, 10*ms, 20*ms))).delayed(10 * ms),
			at(100*ms, slow(1, fits(5, 10*ms, 10*ms)), two(1, fits(2, 5*ms, 5*ms))),
			at(100*ms, slow(1, fits(4, 10*ms, 20*ms)), two(1, fits(1, 5*ms, 10*ms))).delayed(10 * ms),
		}},
	}), namedTest{changed.name, func(t *testing.T, h Harness) { changed.run(t, h, starts[0]) }}, // where a cell begins
		namedTest{"token-bucket, empty, for patient clients", patient})
}

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
			assert.Equal(t, request > 0, d.Allowed, "%s every %v, request %d", describe(charge), micros(c.every), request)
			wait := max(c.every, d.RetryAfter(), d.Outcomes()[0].MoreAfter)
			if now += wait; h.Elapse != nil {
				h.SetTime(now)
				h.Elapse(wait)
			}
		}
	}
}
