package storetest

import (
	"testing"

	"github.com/routelimit/limit/core"
)

// edges tests quotas with the smallest and largest numbers, for every algorithm. All
// keep the same promises: the full capacity at once and not a unit more, a retry
// that is true to the microsecond, and a full quota after ten years.
func edges() (tests []namedTest) {
	const month, billion = 30 * 24 * 3600 * sec, 1_000_000_000
	for _, a := range core.Algorithms() {
		if q := plainQuota(a, 1, month); !q.Identified() {
			tests = append(tests, namedTest{a.String() + ", one in a month", func(t *testing.T, h Harness) { edge(t, h, q) }})
			q.Window = ms
			tests = append(tests, namedTest{a.String() + ", one in a millisecond", func(t *testing.T, h Harness) { edge(t, h, q) }})
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
		tests = append(tests, namedTest{name, func(t *testing.T, h Harness) { edge(t, h, q) }})
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
		if d := ask(cost); !d.Allowed {
			t.Fatalf("%d of %d refused: %+v", cost, capacity, d.Outcomes()[0])
		}
	}
	refuse := func(cost int64) (retry int64) {
		t.Helper()
		d := ask(cost)
		if d.Allowed {
			t.Fatalf("%d of %d admitted", cost, capacity)
		}
		return d.RetryAfter()
	}

	if capacity < core.MaxCost {
		if retry := refuse(capacity + 1); retry != core.Never {
			t.Fatalf("more than there can ever be fits after %d", retry)
		}
	}
	admit(capacity)
	if d := ask(0); d.Outcomes()[0].Remaining != 0 {
		t.Fatalf("%d remain of nothing", d.Outcomes()[0].Remaining)
	}
	for _, cost := range []int64{1, capacity} {
		retry := refuse(cost)
		if retry <= 0 {
			t.Fatalf("cost %d: retry after %d", cost, retry)
		}
		now += retry - 1
		if again := refuse(cost); again != 1 {
			t.Fatalf("cost %d: a microsecond before the retry it fits after %d", cost, again)
		}
		now++
		admit(cost)
	}
	now += 10 * 366 * 24 * 3600 * sec
	admit(capacity)
	if capacity < core.MaxCost {
		if retry := refuse(capacity + 1); retry != core.Never {
			t.Fatalf("more than there can ever be fits after %d", retry)
		}
	}
}
