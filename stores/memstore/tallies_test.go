package memstore

import (
	"testing"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestTallies compares the store with package core: see [storetest.Lives].
func TestTallies(t *testing.T) {
	race.Skip(t)
	s, now := at(0)
	storetest.Lives(t, storetest.Harness{Store: s, SetTime: now.Store}, storetest.Tallies, 0, 2_000)
}

// TestTwoAlgorithms has a client ask every 10 ms for 600 s, of two versions of a rule with
// different algorithms: of each in turn, and of the second after 300 s of the first.
func TestTwoAlgorithms(t *testing.T) {
	race.Skip(t)
	const second = 1_000_000
	quota := func(a core.Algorithm) core.Quota {
		q := core.Quota{Algorithm: a, Limit: 30, Window: 10 * second}
		if a == core.SlidingCells {
			q.Cells = 10
		}
		if q.Refills() {
			q.Burst = 30
		}
		return q
	}
	for _, test := range []struct{ one, other core.Algorithm }{
		{core.SlidingLog, core.TokenBucket}, {core.SlidingLog, core.SlidingCells}, {core.FixedWindow, core.SlidingLog},
		{core.FixedWindow, core.TokenBucket}, {core.SlidingCounter, core.Queue}, {core.TokenBucket, core.Queue},
	} {
		admitted := func(version func(i int) core.Algorithm) (n int) {
			s, now := at(1_800_000_000_000_000)
			for i := range 60_000 {
				now.Add(second / 100)
				if take(t, s, core.Charge{Rule: "r", Key: "k", Quota: quota(version(i)), Cost: 1}).Allowed {
					n++
				}
			}
			return n
		}
		both := []core.Algorithm{test.one, test.other}
		one, other := admitted(func(int) core.Algorithm { return test.one }), admitted(func(int) core.Algorithm { return test.other })
		turns, change := admitted(func(i int) core.Algorithm { return both[i%2] }), admitted(func(i int) core.Algorithm { return both[i/30_000] })
		t.Logf("%v %d, %v %d: in turn %d, changed %d", test.one, one, test.other, other, turns, change)
		for _, n := range []int{turns, change} {
			if n < min(one, other)-60 || n > max(one, other)+60 {
				t.Errorf("%d", n)
			}
		}
	}
}
