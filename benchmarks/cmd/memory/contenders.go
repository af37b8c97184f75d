package main

import (
	"context"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// A quota is a limit and its window.
type quota struct {
	limit  int64
	window time.Duration
}

// A caller is called once by each goroutine. It returns the function that decides,
// which may have memory of its own, as a server has for one request.
type caller func() func(key string) bool

// The contenders decide in memory, by one rule for each key or by two rules, of which all
// keys share the second.
var contenders = []struct {
	name  string
	rules int
	new   func(load) caller
}{
	{"x/time/rate in a sync.Map", 2, timeRates},
	{"go-limiter", 1, goLimiter},
	{"memstore", 2, store},
	{"limit.Policy.Take", 1, policy(1)},
	{"limit.Policy.Take", 2, policy(2)},
}

// timeRates charges a second limiter after the first, as stacked middleware does. A refusal by
// the second leaves the first one charged.
func timeRates(l load) caller {
	limiter := func(q quota) *rate.Limiter {
		return rate.NewLimiter(rate.Every(q.window/time.Duration(q.limit)), int(q.limit))
	}
	var limiters sync.Map
	all := limiter(ample)
	decide := func(key string) bool {
		each, ok := limiters.Load(key)
		if !ok {
			each, _ = limiters.LoadOrStore(key, limiter(l.each))
		}
		return each.(*rate.Limiter).Allow() && all.Allow()
	}
	return func() func(string) bool { return decide }
}

func goLimiter(l load) caller {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.each.limit), Interval: l.each.window})
	must(err)
	ctx := context.Background()
	decide := func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		must(err)
		return ok
	}
	return func() func(string) bool { return decide }
}

// store decides two rules together, below the API.
func store(l load) caller {
	s := memstore.New(&memstore.Options{MaxKeys: l.maxKeys()})
	ctx := context.Background()
	charge := func(rule string, q quota) core.Charge {
		quota := core.Quota{Limit: q.limit, Window: q.window.Microseconds()}
		return core.Charge{Policy: "POST /update", Rule: rule, Cost: 1, Quota: quota}
	}
	return func() func(string) bool {
		asks := []core.Ask{{Charges: []core.Charge{charge("ip", l.each), charge("global", ample)}}}
		return func(key string) bool {
			asks[0].Charges[0].Key = key
			must(s.Take(ctx, asks))
			return asks[0].Decision.Allowed
		}
	}
}

// policy decides the rules together, with the API.
func policy(rules int) func(load) caller {
	return func(l load) caller {
		both := []limit.Rule{limit.PerIP(l.each.window, l.each.limit), limit.Global(ample.window, ample.limit)}
		policy, err := limit.New(nil, &limit.Options{MaxKeys: l.maxKeys()}).Policy(limit.Named("update", both[:rules]...))
		must(err)
		ctx := context.Background()
		return func() func(string) bool {
			request := limit.Request{Keys: map[string]string{"ip": ""}}
			return func(key string) bool {
				request.Keys["ip"] = key
				d, err := policy.Take(ctx, request)
				must(err)
				return d.Allowed
			}
		}
	}
}

// maxKeys returns a MaxKeys: the default, if that is enough.
func (l load) maxKeys() int { return max(2*l.keys, memstore.DefaultMaxKeys) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
