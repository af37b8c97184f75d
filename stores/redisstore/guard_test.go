package redisstore

import (
	"testing"
	"time"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/storetest"
)

// TestGuarded runs the suite through a guard. Its memory goes by another clock
// than the store, years away, which must not show while the store works.
func TestGuarded(t *testing.T) {
	fewSchedules(t)
	client := redistest.Client(t)
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		h := harness(client)
		h.Store = guard.New(h.Store, &guard.Options{Slow: time.Minute}) // the machine may be loaded
		test(t, h)
	})
}
