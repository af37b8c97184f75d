package memstore

import (
	"testing"

	"github.com/routelimit/limit/stores/storetest"
)

// TestPeriods has versions of rules that count in periods charge keys: see
// [storetest.Periods].
func TestPeriods(t *testing.T) {
	s, now := at(0)
	storetest.Periods(t, storetest.Harness{Store: s, SetTime: now.Store, Elapse: s.elapse}, 1, 500)
}
