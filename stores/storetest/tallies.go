package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// told tests that what one algorithm admits counts for another one: what was spent before that
// one comes, and each unit from then on, from when it was taken.
func told() (tests []namedTest) {
	for _, one := range core.Algorithms() {
		for _, other := range core.Algorithms() {
			if counts(one) && counts(other) && !one.Alike(other) {
				tests = append(tests, namedTest{fmt.Sprint(one, " and ", other), func(t *testing.T, h Harness) {
					tellEachOther(t, h, plainQuota(one, 10, 10*sec), plainQuota(other, 10, 10*sec))
				}})
			}
		}
	}
	return append(tests, namedTest{"queues of two rates beside buckets", tellSlowQueue})
}

// tellSlowQueue has queues and buckets together admit no more than at their rate. The longest
// queue in time is of the slow version, so what buckets admit counts up to there.
func tellSlowQueue(t *testing.T, h Harness) {
	random, most, now := rand.New(rand.NewPCG(1, 1)), int64(0), starts[0]
	versions := []core.Quota{
		{Algorithm: core.Queue, Limit: 1, Window: 10 * sec, Burst: 1},
		{Algorithm: core.LeakyBucket, Limit: 1, Window: 10 * sec, Burst: 1},
		{Algorithm: core.TokenBucket, Limit: 1, Window: 10 * sec, Burst: 2},
		{Algorithm: core.Queue, Limit: 1, Window: 20 * sec, Burst: 1},
	}
	meter := newMeter(versions, now, false)
	for i := range 1_500 {
		now += random.Int64N(10 * sec)
		h.SetTime(now)
		if take(t, h, "policy", core.Charge{Rule: "r", Key: "k", Quota: versions[i%4], Cost: 1}).Allowed {
			most = max(most, meter.add(now))
		}
	}
	require.LessOrEqual(t, most, int64(7)) // see capacity
}

func tellEachOther(t *testing.T, h Harness, one, other core.Quota) {
	key := "k"
	left := func(at int64, q core.Quota, cost, spent int64) {
		t.Helper()
		h.SetTime(starts[0] + at)
		d := take(t, h, "policy", core.Charge{Rule: "r", Key: key, Quota: q, Cost: cost})
		require.True(t, d.Allowed)
		require.Equal(t, q.Capacity()-spent, first(d).Remaining, "%v, %v after the start", q.Algorithm, core.Duration(at))
	}
	all := core.Algorithms()
	third := all[slices.IndexFunc(all, func(a core.Algorithm) bool {
		return counts(a) && !a.Alike(one.Algorithm) && !a.Alike(other.Algorithm)
	})]
	left(0, one, 6, 6)
	left(0, other, 1, 7)
	left(0, plainQuota(third, 10, 10*sec), 1, 8)
	left(0, one, 2, 10)
	left(0, plainQuota(third, 10, 10*sec), 0, 10)
	left(0, other, 0, 10)
	if other.Algorithm != core.SlidingLog {
		return
	}
	left(10*sec-1, other, 0, 10)
	left(10*sec, other, 0, 0)

	key = "of which units were known when the log came"
	h.SetTime(starts[0])
	left(0, one, 6, 6)
	left(5*sec, other, 1, 7)
	left(11*sec, other, 0, 1)
	left(15*sec, other, 0, 0)
}
