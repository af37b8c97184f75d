package memstore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

// TestAnyWindow lets many goroutines take as much as they can, by the clock of the machine,
// and then checks every window of what they took.
func TestAnyWindow(t *testing.T) {
	s := New(nil)
	narrow := core.Quota{Limit: 5, Window: 50_000}
	wide := core.Quota{Limit: 40, Window: 700_000}
	deadline := time.Now().Add(time.Second)
	var mu sync.Mutex
	var admitted []int64
	var all sync.WaitGroup
	for i := range 64 {
		charges := []core.Charge{
			{Rule: "narrow", Quota: narrow, Cost: 1},
			{Rule: "wide", Quota: wide, Cost: 1},
		}
		if i%2 == 0 {
			slices.Reverse(charges)
		}
		all.Go(func() {
			for time.Now().Before(deadline) {
				d, err := storetest.Take(context.Background(), s, "policy", charges)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					mu.Lock()
					admitted = append(admitted, d.At)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	slices.Sort(admitted)
	for _, q := range []core.Quota{narrow, wide} {
		limit, closest := int(q.Limit), int64(core.MaxWindow)
		for i := limit; i < len(admitted); i++ {
			between := admitted[i] - admitted[i-limit]
			closest = min(closest, between)
			if between < q.Window {
				t.Errorf("%d units within %d µs, want at most %d in %d µs", limit+1, between, limit, q.Window)
			}
		}
		t.Logf("%d per %d µs: %d units were never within less than %d µs", limit, q.Window, limit+1, closest)
	}
	// In a second, 40 at once and more after 700 ms. Half of them is enough to
	// show that the store does not just refuse.
	if len(admitted) < 20 {
		t.Errorf("only %d admitted", len(admitted))
	}
}
