package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

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
