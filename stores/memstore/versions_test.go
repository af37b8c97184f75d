package memstore

import (
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestPeriods has versions of rules that count in periods charge keys: see
// [storetest.Lives].
func TestPeriods(t *testing.T) {
	race.Skip(t)
	s, now := at(0)
	storetest.Lives(t, storetest.Harness{Store: s, SetTime: now.Store, Elapse: s.elapse}, storetest.Periods, 0, 500)
}

// BenchmarkPeriods has one version of a rule charge its keys, and two in turn.
func BenchmarkPeriods(b *testing.B) {
	quota := func(a core.Algorithm, window int64) core.Quota {
		q := core.Quota{Algorithm: a, Limit: 1_000_000_000, Window: window}
		if a == core.SlidingCells {
			q.Cells = 10
		}
		return q
	}
	for _, a := range []core.Algorithm{core.SlidingCells, core.SlidingCounter, core.FixedWindow} {
		for _, versions := range []int{1, 2} {
			b.Run(fmt.Sprint(a, "/versions=", versions), func(b *testing.B) {
				s, keys := New(nil), addresses(1000)
				asks := []core.Ask{{Charges: []core.Charge{{Policy: "p", Rule: "r", Cost: 1}}}}
				quotas := []core.Quota{quota(a, 10_000_000), quota(a, 1_000_000)}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c := &asks[0].Charges[0]
					c.Key, c.Quota = keys[i/2%len(keys)], quotas[i%versions]
					if err := s.Take(b.Context(), asks); err != nil || !asks[0].Decision.Allowed {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestLevels(t *testing.T) {
	race.Skip(t)
	s, now := at(0)
	h := storetest.Harness{Store: s, SetTime: now.Store}
	storetest.Lives(t, h, storetest.Levels, 0, 1_500)
}

func TestTimes(t *testing.T) {
	race.Skip(t)
	n := 1_500
	if testing.Short() {
		n = 500
	}
	s, now := at(0)
	storetest.Lives(t, storetest.Harness{Store: s, SetTime: now.Store, Elapse: s.elapse}, storetest.Times, 0, n)
}

// TestTwoLogs has a log of 30 in 10 s beside one of 3 in a second, in turn. The first alone
// would admit 30 in 10 s, and so do both, while the second adds at most what it alone would.
func TestTwoLogs(t *testing.T) {
	s, now := at(1_000_000_000)
	long, brief := core.Quota{Limit: 30, Window: 10_000_000}, core.Quota{Limit: 3, Window: 1_000_000}
	admitted := 0
	for i := range 10_000 { // 10 s
		now.Add(1_000)
		q := long
		if i%2 > 0 {
			q = brief
		}
		if take(t, s, core.Charge{Rule: "r", Key: "k", Quota: q, Cost: 1}).Allowed {
			admitted++
		}
	}
	if admitted > 30+30 {
		t.Errorf("%d admitted in 10 s", admitted)
	}
	t.Logf("%d admitted in 10 s", admitted)
}

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
