package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// beside has a client take all it can get from two versions of a rule behind a random
// balancer. The bound is what the looser version alone admits, and the constant that
// docs/changing-limits.md states for the algorithm.
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
		{plainQuota(core.FixedWindow, 30, 10*sec), plainQuota(core.FixedWindow, 3, sec), 250 * ms, 60 * sec, 60, 201},
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

// returning has a version with a window of a second use a key for most of 10 seconds, and one
// with 10 seconds take all it can at their end, again and again. If the window of the short one
// has ended, the store does not know what was admitted: an aligned window that has begun before
// gets one limit more each time. Nothing else adds up.
func returning() (tests []namedTest) {
	const limit, rounds = 10, 20
	for _, test := range []struct {
		name   string
		other  core.Quota
		lasts  int64 // how long the short one meets requests in a round
		admits int64
	}{
		{"an aligned window returns to a key that has forgotten it", core.Quota{Limit: limit, Aligned: true}, 9 * sec, 19 * rounds},
		{"an aligned window returns to a key that knows it", core.Quota{Limit: limit, Aligned: true}, 9*sec + 500*ms, 0},
		{"a window of the key returns to it", core.Quota{Limit: limit}, 9 * sec, 0},
	} {
		tests = append(tests, namedTest{test.name, func(t *testing.T, h Harness) {
			short, long := plainQuota(core.FixedWindow, 1, sec), test.other
			long.Algorithm, long.Window = core.FixedWindow, 10*sec
			m, admitted := newMirror(t, h, test.name, 1, 1), int64(0)
			began := starts[0] - starts[0]%long.Window
			m.now, m.expires = began, h.Elapse != nil
			request := func(q core.Quota, at int64) bool {
				m.pass(at - m.now)
				d := m.take(core.Charge{Policy: m.policy, Rule: "r", Key: "k", Quota: q, Cost: 1})
				if d.Allowed {
					admitted++
				}
				return d.Allowed
			}
			for round := range int64(rounds) {
				begins := began + round*long.Window
				for at := int64(0); at < test.lasts; at += 250 * ms {
					request(short, begins+at)
				}
				for request(long, begins+test.lasts) {
				}
			}
			t.Logf("%d in %d windows", admitted, rounds)
			if test.admits > 0 {
				require.Equal(t, test.admits, admitted)
			}
			require.LessOrEqual(t, admitted, max(test.admits, rounds*limit+2*limit))
		}})
	}
	return tests
}

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
