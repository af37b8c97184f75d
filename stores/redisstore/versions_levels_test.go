package redisstore

import (
	"testing"

	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

func TestLevels(t *testing.T) {
	race.Skip(t)
	h := harness(redistest.Client(t))
	storetest.Levels(t, h, 60)
	storetest.TwoBursts(t, h)
}
