package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		at(1_050*ms, brief(0, fits(5, 50*ms, 60*ms))),
		at(1_100*ms, brief(0, fits(8, 10*ms, 10*ms))),
		at(1_110*ms, brief(10, fits(0, 110*ms, 110*ms))),
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
			assert.Equal(t, request > 0, d.Allowed, "%s every %v, request %d", describe(charge), core.Duration(c.every), request)
			wait := max(c.every, d.RetryAfter(), d.Outcomes()[0].MoreAfter)
			if now += wait; h.Elapse != nil {
				h.SetTime(now)
				h.Elapse(wait)
			}
		}
	}
}

// edges tests quotas with the smallest and largest numbers, for every algorithm. All
// keep the same promises: the full capacity at once and not a unit more, a retry
// that is true to the microsecond, and a full quota after ten years.
func edges() (tests []namedTest) {
	const month, billion = 30 * 24 * 3600 * sec, 1_000_000_000
	add := func(name string, q core.Quota) {
		tests = append(tests, namedTest{name, func(t *testing.T, h Harness) { edge(t, h, q) }})
	}
	for _, a := range core.Algorithms() {
		if q := plainQuota(a, 1, month); !q.Identified() {
			add(a.String()+", one in a month", q)
			q.Window = ms
			add(a.String()+", one in a millisecond", q)
		}
	}
	for name, q := range map[string]core.Quota{
		"log, one in a year":                {Limit: 1, Window: core.MaxWindow},
		"fixed window, a billion":           {Algorithm: core.FixedWindow, Limit: billion, Window: ms},
		"fixed window, the most":            {Algorithm: core.FixedWindow, Limit: core.MaxLimit, Window: core.MaxWindow},
		"aligned, one in a month":           {Algorithm: core.FixedWindow, Limit: 1, Window: month, Aligned: true},
		"cells, one in a month":             {Algorithm: core.SlidingCells, Limit: 1, Window: month, Cells: 60},
		"cells, one in a millisecond":       {Algorithm: core.SlidingCells, Limit: 1, Window: ms, Cells: 60},
		"cells, the most":                   {Algorithm: core.SlidingCells, Limit: core.MaxLimit, Window: core.MaxWindow, Cells: 2},
		"counter, a billion":                {Algorithm: core.SlidingCounter, Limit: billion, Window: ms},
		"counter, the most":                 {Algorithm: core.SlidingCounter, Limit: core.MaxLimit, Window: core.MaxWindow},
		"token bucket, ten years":           {Algorithm: core.TokenBucket, Limit: 1, Window: core.MaxWindow, Burst: 10},
		"token bucket, one in a nanosecond": {Algorithm: core.TokenBucket, Limit: 1_000_000, Window: ms, Burst: 1},
		"token bucket, a billion":           {Algorithm: core.TokenBucket, Limit: 3, Window: 7 * ms, Burst: billion},
		"token bucket, the most":            {Algorithm: core.TokenBucket, Limit: core.MaxLimit, Window: ms, Burst: core.MaxLimit},
		"leaky bucket, ten years":           {Algorithm: core.LeakyBucket, Limit: 1, Window: core.MaxWindow, Burst: 10},
		"leaky bucket, one in a nanosecond": {Algorithm: core.LeakyBucket, Limit: 1_000_000, Window: ms, Burst: 1},
		"leaky bucket, the most":            {Algorithm: core.LeakyBucket, Limit: core.MaxLimit, Window: ms, Burst: core.MaxLimit},
		"queue, one in a month":             {Algorithm: core.Queue, Limit: 1, Window: month},
		"queue, one in a nanosecond":        {Algorithm: core.Queue, Limit: 1_000_000, Window: ms, Burst: 1},
		"queue, the most":                   {Algorithm: core.Queue, Limit: core.MaxLimit, Window: ms, Burst: core.MaxLimit},
	} {
		add(name, q)
	}
	return tests
}

func edge(t *testing.T, h Harness, q core.Quota) {
	now, capacity := starts[0], q.Capacity()
	ask := func(cost int64) core.Decision {
		t.Helper()
		h.SetTime(now)
		return take(t, h, "edges", core.Charge{Rule: "r", Key: "k", Quota: q, Cost: cost})
	}
	admit := func(cost int64) {
		t.Helper()
		d := ask(cost)
		require.True(t, d.Allowed, "%d of %d refused: %+v", cost, capacity, first(d))
	}
	refuse := func(cost int64) (retry int64) {
		t.Helper()
		d := ask(cost)
		require.False(t, d.Allowed, "%d of %d admitted", cost, capacity)
		return d.RetryAfter()
	}
	refuseMore := func() {
		t.Helper()
		if capacity < core.MaxCost {
			require.Equal(t, core.Never, refuse(capacity+1), "more than there can ever be")
		}
	}

	refuseMore()
	admit(capacity)
	require.Zero(t, first(ask(0)).Remaining)
	for _, cost := range []int64{1, capacity} {
		retry := refuse(cost)
		require.Positive(t, retry, "cost %d", cost)
		now += retry - 1
		require.EqualValues(t, 1, refuse(cost), "cost %d, a microsecond before the retry", cost)
		now++
		admit(cost)
	}
	now += 10 * 366 * 24 * 3600 * sec
	admit(capacity)
	refuseMore()
}

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
