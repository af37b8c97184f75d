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
	storetest.Lives(t, h, storetest.Levels, 0, 180)
}
