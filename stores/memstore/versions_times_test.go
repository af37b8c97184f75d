package memstore

import (
	"testing"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

func TestTimes(t *testing.T) {
	race.Skip(t)
	n := 5_000
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
