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
