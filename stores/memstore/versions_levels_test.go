package memstore

import (
	"testing"

	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

func TestLevels(t *testing.T) {
	race.Skip(t)
	s, now := at(0)
	h := storetest.Harness{Store: s, SetTime: now.Store}
	storetest.Lives(t, h, storetest.Levels, 0, 1_500)
}
