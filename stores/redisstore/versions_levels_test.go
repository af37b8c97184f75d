package redisstore

import (
	"testing"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

func TestLevels(t *testing.T) {
	h := harness(redistest.Client(t))
	storetest.Levels(t, h, 60)
	storetest.TwoBursts(t, h)
}
