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
