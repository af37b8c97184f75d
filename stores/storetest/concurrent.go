package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routelimit/limit/core"
)

const callers = 64

// concurrent tests that concurrent decisions have the results of some order.
func concurrent() []namedTest {
	return []namedTest{
		{"one key", func(t *testing.T, h Harness) { sharedKeys(t, h, 1, 100) }},
		{"one key, many units", func(t *testing.T, h Harness) { sharedKeys(t, h, 1, 300) }},
		{"many keys", func(t *testing.T, h Harness) { sharedKeys(t, h, 16, 7) }},
		{"several units", severalUnits},
		{"rules in any order", anyOrder},
		{"all or nothing", allOrNothing},
	}
}

// together calls f from many goroutines at once, and fails if they do not return.
func together(t *testing.T, f func(caller int)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	begin, done := make(chan struct{}), make(chan struct{})
	for caller := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			<-begin
			f(caller)
		}()
	}
	close(begin)
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("deadlock: the callers have not returned after 20 s")
	}
}

// tryTake is take for other goroutines than that of the test.
func tryTake(t *testing.T, h Harness, charges ...core.Charge) core.Decision {
	d, err := Take(context.Background(), h.Store, "policy", charges)
	if err != nil {
		t.Error(err)
		return core.NewDecision(0, len(charges))
	}
	return d
}

// sharedKeys asks for twice the limit of some keys.
func sharedKeys(t *testing.T, h Harness, keys int, limit int64) {
	h.SetTime(starts[0])
	rounds := 1 + int(limit)*keys*2/callers
	admitted := make([]atomic.Int64, keys)
	together(t, func(caller int) {
		for i := range rounds {
			key := (caller + i) % keys
			d := tryTake(t, h, core.Charge{Rule: "r", Key: fmt.Sprint(key), Cost: 1,
				Quota: core.Quota{Limit: limit, Window: sec}})
			if d.Allowed {
				admitted[key].Add(1)
			}
		}
	})
	for key := range admitted {
		if got := admitted[key].Load(); got != limit {
			t.Errorf("key %d: %d admitted at once, want %d", key, got, limit)
		}
	}
}

// severalUnits takes different costs, and checks what remains.
func severalUnits(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Limit: 500, Window: sec}
	var taken atomic.Int64
	together(t, func(caller int) {
		for i := range 8 {
			cost := int64((caller + i) % 5)
			if tryTake(t, h, core.Charge{Rule: "r", Quota: quota, Cost: cost}).Allowed {
				taken.Add(cost)
			}
		}
	})
	d := take(t, h, "policy", core.Charge{Rule: "r", Quota: quota})
	if left := d.Outcomes()[0].Remaining; taken.Load()+left != quota.Limit {
		t.Errorf("%d taken and %d left of %d", taken.Load(), left, quota.Limit)
	}
}

// anyOrder charges the same keys in many orders. A store that locks them one by one
// would deadlock.
func anyOrder(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	const limit = 200
	quota := core.Quota{Limit: limit, Window: sec}
	var admitted atomic.Int64
	together(t, func(caller int) {
		for i := range 8 {
			charges := make([]core.Charge, 6)
			for j := range charges {
				rule := (j + i) % len(charges)
				if caller%2 == 0 {
					rule = len(charges) - 1 - rule
				}
				charges[j] = core.Charge{Rule: fmt.Sprint(rule), Quota: quota, Cost: 1}
			}
			if tryTake(t, h, charges...).Allowed {
				admitted.Add(1)
			}
		}
	})
	if h.Spreads {
		noneLost(t, h, 6, quota, admitted.Load())
		return
	}
	if got := admitted.Load(); got != limit {
		t.Errorf("%d admitted, want %d", got, limit)
	}
}

// allOrNothing takes from a large and from small quotas. What the small ones
// refuse must not be missing from the large one.
func allOrNothing(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	large, small := core.Quota{Limit: 1_000, Window: sec}, core.Quota{Limit: 5, Window: sec}
	var admitted atomic.Int64
	together(t, func(caller int) {
		for i := range 8 {
			charges := []core.Charge{
				{Rule: "large", Quota: large, Cost: 1},
				{Rule: "small", Key: fmt.Sprint(i), Quota: small, Cost: 1},
			}
			if caller%2 == 0 {
				charges[0], charges[1] = charges[1], charges[0]
			}
			if tryTake(t, h, charges...).Allowed {
				admitted.Add(1)
			}
		}
	})
	if got, want := admitted.Load(), 8*small.Limit; got != want {
		t.Errorf("%d admitted, want %d", got, want)
	}
	d := take(t, h, "policy", core.Charge{Rule: "large", Quota: large})
	if spent := large.Limit - d.Outcomes()[0].Remaining; spent != admitted.Load() {
		t.Errorf("%d admitted, but %d spent of the rule that has room", admitted.Load(), spent)
	}
}

// noneLost tests that every rule has got back the units of refused requests.
func noneLost(t *testing.T, h Harness, rules int, quota core.Quota, admitted int64) {
	t.Helper()
	if admitted == 0 || admitted > quota.Limit {
		t.Errorf("%d admitted of %d", admitted, quota.Limit)
	}
	for i := range rules {
		d := take(t, h, "policy", core.Charge{Rule: fmt.Sprint(i), Quota: quota})
		if spent := quota.Limit - d.Outcomes()[0].Remaining; spent != admitted {
			t.Errorf("%d admitted, but %d spent of rule %d", admitted, spent, i)
		}
	}
}
