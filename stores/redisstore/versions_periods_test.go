package redisstore

import (
	"testing"

	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestPeriods has versions of rules that count in periods charge keys: see
// [storetest.Periods].
func TestPeriods(t *testing.T) {
	race.Skip(t)
	storetest.Periods(t, harness(redistest.Client(t)), 1, 400)
}
