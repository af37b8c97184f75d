package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// beside has a client take all it can get from two versions of a rule behind a random
// balancer. The bound is what the looser version alone admits, and the constant that
// docs/plans.md states for the algorithm.
func beside() (tests []namedTest) {
	bucket := func(a core.Algorithm, burst int64) core.Quota {
		return core.Quota{Algorithm: a, Limit: 1, Window: sec, Burst: burst}
	}
	for _, test := range []struct {
		one, other       core.Quota
		step, lasts      int64
		constant, admits int64
	}{
		{bucket(core.TokenBucket, 100), bucket(core.TokenBucket, 1), 250 * ms, 10 * sec, 0, 109},
		{bucket(core.TokenBucket, 100), bucket(core.TokenBucket, 1), 250 * ms, 300 * sec, 0, 399},
		{bucket(core.LeakyBucket, 100), bucket(core.LeakyBucket, 1), 250 * ms, 300 * sec, 0, 399},
		{bucket(core.Queue, 99), bucket(core.Queue, 0), 250 * ms, 20 * sec, 0, 119},
		{plainQuota(core.SlidingLog, 30, 10*sec), plainQuota(core.SlidingLog, 3, sec), 250 * ms, 60 * sec, 30, 207},
		{plainQuota(core.Distinct, 30, 10*sec), plainQuota(core.Distinct, 3, sec), 250 * ms, 60 * sec, 30, 207},
		{plainQuota(core.SlidingCells, 50, 10*sec), plainQuota(core.SlidingCells, 25, 5*sec), 250 * ms, 60 * sec, 100, 325},
		{plainQuota(core.SlidingCounter, 30, 10*sec), plainQuota(core.SlidingCounter, 3, sec), 250 * ms, 60 * sec, 60, 185},
		{plainQuota(core.FixedWindow, 30, 10*sec), plainQuota(core.FixedWindow, 3, sec), 250 * ms, 60 * sec, 60, 222},
		{plainQuota(core.SlidingLog, 30, 10*sec), plainQuota(core.TokenBucket, 30, 10*sec), 250 * ms, 60 * sec, 60, 209},
	} {
		name := fmt.Sprintf("%v and %v, bursts %d and %d, for %v", test.one.Algorithm, test.other.Algorithm, test.one.Burst, test.other.Burst, core.Duration(test.lasts))
		tests = append(tests, namedTest{name, func(t *testing.T, h Harness) {
			admitted := func(h *Harness, versions ...core.Quota) (n int64) {
				random, state := rand.New(rand.NewPCG(1, 2)), core.NewState(versions[0].Algorithm)
				for now := starts[0]; now < starts[0]+test.lasts; now += test.step {
					c := core.Charge{Rule: "r", Key: "k", Quota: pick(random, versions), Cost: 1}
					if c.Quota.Identified() {
						c.ID = uint64(now)
					}
					for allowed := true; allowed && n < 1e5; {
						if h != nil {
							h.SetTime(now)
							allowed = take(t, *h, "policy", c).Allowed
						} else {
							allowed = core.Decide(now, []core.Charge{c}, []core.State{state}).Allowed
						}
						if allowed {
							n++
						}
						if c.ID > 0 {
							c.ID++
						}
					}
				}
				return n
			}
			one, other, both := admitted(nil, test.one), admitted(nil, test.other), admitted(&h, test.one, test.other)
			t.Logf("%d together, %d and %d alone", both, one, other)
			require.LessOrEqual(t, both, max(one, other)+test.constant)
			require.Equal(t, test.admits, both)
		}})
	}
	return tests
}
