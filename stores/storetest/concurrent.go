package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
		{"one key", func(t *testing.T, h Harness) { sharedKeys(t, h, 1, 1, 100) }},
		{"one key, many units", func(t *testing.T, h Harness) { sharedKeys(t, h, 1, 1, 300) }},
		{"many keys", func(t *testing.T, h Harness) { sharedKeys(t, h, 16, 1, 7) }},
		{"rules in any order", func(t *testing.T, h Harness) { sharedKeys(t, h, 1, 6, 200) }},
		{"several asks, some given back", mixed},
	}
}

// together calls f from many goroutines at once, and fails if they do not return.
func together(t *testing.T, f func(caller int)) {
	t.Helper()
	var all sync.WaitGroup
	begin, done := make(chan struct{}), make(chan struct{})
	for caller := range callers {
		all.Go(func() {
			<-begin
			f(caller)
		})
	}
	close(begin)
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("deadlock: the callers have not returned after 20 s")
	}
}

// sharedKeys asks for twice the limit of some keys, by rules in different orders. A
// store that locks them one by one would deadlock.
func sharedKeys(t *testing.T, h Harness, keys, rules int, limit int64) {
	h.SetTime(starts[0])
	charge := func(rule, key int, cost int64) core.Charge {
		return core.Charge{Rule: fmt.Sprint(rule), Key: fmt.Sprint(key), Cost: cost, Quota: core.Quota{Limit: limit, Window: sec}}
	}
	rounds := 1 + int(limit)*keys*2/callers
	admitted := make([]atomic.Int64, keys)
	together(t, func(caller int) {
		for i := range rounds {
			key := (caller + i) % keys
			charges := make([]core.Charge, rules)
			for j := range charges {
				charges[j] = charge((i+j)%rules, key, 1)
			}
			if caller%2 == 0 {
				slices.Reverse(charges)
			}
			d, err := Take(context.Background(), h.Store, "policy", charges)
			if err != nil {
				t.Error(err)
			} else if d.Allowed {
				admitted[key].Add(1)
			}
		}
	})
	for key := range admitted {
		got := admitted[key].Load()
		if got != limit && (rules == 1 || !h.Spreads || got == 0 || got > limit) {
			t.Errorf("key %d: %d admitted at once, want %d", key, got, limit)
		}
		for rule := range rules {
			if left := first(take(t, h, "policy", charge(rule, key, 0))).Remaining; got+left != limit {
				t.Errorf("key %d: %d admitted, and %d remain of rule %d", key, got, left, rule)
			}
		}
	}
}

// mixed takes different costs of any rules, in one ask or two, and gives some of it back.
// What small rules refuse must not be missing from the others.
func mixed(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	limits := map[string]int64{"a": 5, "b": 100, "c": 300, "d": 1_000, "e": 3_000}
	rules := slices.Sorted(maps.Keys(limits))
	charge := func(rule string, cost int64) core.Charge {
		return core.Charge{Policy: "policy", Rule: rule, Quota: core.Quota{Limit: limits[rule], Window: sec}, Cost: cost}
	}
	spent := make(map[string]*atomic.Int64)
	for _, rule := range rules {
		spent[rule] = new(atomic.Int64)
	}
	together(t, func(caller int) {
		random := rand.New(rand.NewPCG(3, uint64(caller)))
		for range 8 {
			asks := make([]core.Ask, 1+random.IntN(2))
			for i := range asks {
				for _, j := range random.Perm(len(rules))[:1+random.IntN(3)] {
					asks[i].Charges = append(asks[i].Charges, charge(rules[j], random.Int64N(5)))
				}
			}
			if err := h.Store.Take(context.Background(), asks); err != nil {
				t.Error(err)
				return
			}
			for _, ask := range asks {
				if !ask.Decision.Allowed {
					continue
				}
				for _, c := range ask.Charges {
					spent[c.Rule].Add(c.Cost)
				}
				if random.IntN(4) > 0 {
					continue
				}
				list := returnsOf(ask.Charges, ask.Decision)
				given, err := h.Store.Return(context.Background(), list)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range list {
					spent[r.Rule].Add(-given[i].Units)
				}
			}
		}
	})
	for _, rule := range rules {
		left, spent := first(take(t, h, "policy", charge(rule, 0))).Remaining, spent[rule].Load()
		if spent+left != limits[rule] || spent == 0 {
			t.Errorf("rule %s: %d spent and %d left of %d", rule, spent, left, limits[rule])
		}
	}
}
