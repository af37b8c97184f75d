package redisstore

import (
	"os"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/storetest"
)

// TestGuarded runs the suite through a guard, on a store with a Secret. The memory of the
// guard goes by another clock than the store, years away, which must not show while the
// store works. It runs few random schedules: TestStore runs them on the same script.
func TestGuarded(t *testing.T) {
	if os.Getenv("LIMIT_SCHEDULES") == "" {
		t.Setenv("LIMIT_SCHEDULES", "10")
	}
	client := redistest.Client(t)
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		h := harness(client)
		h.Store.(*Store).hasher = newKeyHasher(secret)
		h.Store = guard.New(h.Store, &guard.Options{Slow: time.Minute}) // the machine may be loaded
		test(t, h)
	})
}
