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

	"github.com/stretchr/testify/assert"

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

// together calls f from many goroutines at once. If they do not return, it panics, which
// shows where they wait.
func together(t *testing.T, f func(caller int)) {
	t.Helper()
	var all sync.WaitGroup
	begin := make(chan struct{})
	for caller := range callers {
		all.Go(func() {
			<-begin
			f(caller)
		})
	}
	close(begin)
	deadlock := time.AfterFunc(20*time.Second, func() { panic("deadlock: the callers have not returned after 20 s") })
	defer deadlock.Stop()
	all.Wait()
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
			assert.NoError(t, err)
			if d.Allowed {
				admitted[key].Add(1)
			}
		}
	})
	for key := range admitted {
		got := admitted[key].Load()
		if rules > 1 && h.Spreads {
			assert.Positive(t, got, "key %d", key)
			assert.LessOrEqual(t, got, limit, "key %d", key)
		} else {
			assert.Equal(t, limit, got, "key %d: admitted at once", key)
		}
		for rule := range rules {
			assert.Equal(t, limit-got, remaining(t, h, charge(rule, key, 0)), "key %d, rule %d", key, rule)
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
			if !assert.NoError(t, h.Store.Take(context.Background(), asks)) {
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
				if !assert.NoError(t, err) {
					return
				}
				for i, r := range list {
					spent[r.Rule].Add(-given[i].Units)
				}
			}
		}
	})
	for _, rule := range rules {
		spent := spent[rule].Load()
		assert.Positive(t, spent, "rule %s", rule)
		assert.Equal(t, limits[rule]-spent, remaining(t, h, charge(rule, 0)), "rule %s", rule)
	}
}
