package guard

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestContinuityOfRates checks the other algorithms over cycles of a store that fails and
// recovers. They admit what they promise with one instance, and twice that with
// three: a burst and what refills in the time, or a limit in each window.
func TestContinuityOfRates(t *testing.T) {
	race.Skip(t)
	stories, cycles := 5, 200
	if testing.Short() {
		stories = 1
	}
	for _, q := range []core.Quota{
		{Algorithm: core.TokenBucket, Limit: 9, Window: sec, Burst: 6},
		{Algorithm: core.LeakyBucket, Limit: 9, Window: sec, Burst: 6},
		{Algorithm: core.TokenBucket, Limit: 3, Window: sec, Burst: 30},
		{Algorithm: core.LeakyBucket, Limit: 3, Window: sec, Burst: 30},
		{Algorithm: core.Queue, Limit: 9, Window: sec, Burst: 5},
		{Algorithm: core.FixedWindow, Limit: 9, Window: sec, Aligned: true},
	} {
		for _, instances := range []int{1, 3} {
			worst := -1e9
			for story := range stories {
				f := newFleet(instances, rand.New(rand.NewPCG(7, uint64(story))))
				var times []int64
				for range cycles {
					f.cycle(q.Window, func(instance int) {
						d := storetest.MustTake(t, f.guards[instance], core.Charge{Rule: "r", Quota: q, Cost: 1})
						if d.Allowed {
							times = append(times, f.now.Load())
						}
					})
				}
				worst = max(worst, excess(q, times, min(float64(instances), 2)))
			}
			// A share is rounded up, of the burst and of what comes back.
			assert.LessOrEqual(t, worst, float64(instances-1), "%v, %d instances", q.Algorithm, instances)
			t.Logf("%v, burst %d, %d instances: %.2f above the promise", q.Algorithm, q.Burst, instances, worst)
		}
	}
}

// excess returns by how many units the times exceed the given number of promises of
// q, in the worst interval: below 0 if they do not.
func excess(q core.Quota, times []int64, promises float64) float64 {
	worst := -1e9
	if q.Algorithm == core.FixedWindow {
		in := make(map[int64]float64)
		for _, at := range times {
			in[at/q.Window]++
			worst = max(worst, in[at/q.Window]-promises*float64(q.Limit))
		}
		return worst
	}
	rate := float64(q.Limit) / float64(q.Window)
	least := 1e9 // of i less what has come back until then
	for i, at := range times {
		back := promises * rate * float64(at-times[0])
		least = min(least, float64(i)-back)
		worst = max(worst, float64(i+1)-back-least-promises*float64(q.Capacity()))
	}
	return worst
}
