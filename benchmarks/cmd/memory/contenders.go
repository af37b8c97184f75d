package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4/middleware"
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

// A contender decides in memory, by one rule for each key or by two rules, of which all
// keys share the second.
type contender struct {
	name  string
	rules int
	hot   bool // has no keys, and so takes part for one key only
	new   func(load) caller
}

// A caller is called once by each goroutine. It returns the function that decides,
// which may have memory of its own, as a server has for one request.
type caller func() func(key string) bool

const memory = "memstore"

var contenders = []contender{
	{"floor: sync.Map load and CAS", 1, false, one(floor)},
	{"floor, written by hand", 1, false, byHand(1)},
	{"floor, written by hand", 2, false, byHand(2)},
	{"x/time/rate, one limiter", 1, true, one(timeRate)},
	{"x/time/rate in a sync.Map", 1, false, one(timeRates)},
	{"x/time/rate in a sync.Map", 2, false, two(timeRates, timeRate)},
	{"sethvargo/go-limiter", 1, false, one(goLimiter)},
	{"Echo's memory store", 1, false, one(echoStore)},
	{"Echo's memory store", 2, false, two(echoStore, echoStore)},
	{memory, 1, false, store(1)},
	{memory, 2, false, store(2)},
	{"limit.Policy.Take", 1, false, policy(1)},
	{"limit.Policy.Take", 2, false, policy(2)},
}

// one decides by a limiter for each key.
func one(limiter func(quota) func(string) bool) func(load) caller {
	return func(l load) caller {
		decide := limiter(l.each)
		return func() func(string) bool { return decide }
	}
}

// two charges a second limiter after the first, as stacked middleware does. A refusal by
// the second leaves the first one charged.
func two(each, all func(quota) func(string) bool) func(load) caller {
	return func(l load) caller {
		first, second := each(l.each), all(ample)
		return func() func(string) bool {
			return func(key string) bool { return first(key) && second("global") }
		}
	}
}

// floor counts and never refuses: no limiter can do less.
func floor(quota) func(string) bool {
	var counters sync.Map
	return func(key string) bool {
		c, ok := counters.Load(key)
		if !ok {
			c, _ = counters.LoadOrStore(key, new(atomic.Int64))
		}
		for n := c.(*atomic.Int64); ; {
			if old := n.Load(); n.CompareAndSwap(old, old+1) {
				return true
			}
		}
	}
}

func (q quota) perSecond() rate.Limit { return rate.Every(q.window / time.Duration(q.limit)) }

func timeRate(q quota) func(string) bool {
	limiter := rate.NewLimiter(q.perSecond(), int(q.limit))
	return func(string) bool { return limiter.Allow() }
}

func timeRates(q quota) func(string) bool {
	var limiters sync.Map
	return func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(q.perSecond(), int(q.limit)))
		}
		return l.(*rate.Limiter).Allow()
	}
}

func goLimiter(q quota) func(string) bool {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.limit), Interval: q.window})
	must(err)
	ctx := context.Background()
	return func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		must(err)
		return ok
	}
}

func echoStore(q quota) func(string) bool {
	s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: q.perSecond(), Burst: int(q.limit), ExpiresIn: time.Hour,
	})
	return func(key string) bool {
		ok, err := s.Allow(key)
		must(err)
		return ok
	}
}

// store decides the rules together, below the API.
func store(rules int) func(load) caller {
	return func(l load) caller {
		s := memstore.New(&memstore.Options{MaxKeys: l.maxKeys()})
		ctx := context.Background()
		return func() func(string) bool {
			charges := []core.Charge{
				{Policy: "POST /update", Rule: "ip", Quota: l.each.core(), Cost: 1},
				{Policy: "POST /update", Rule: "global", Quota: ample.core(), Cost: 1},
			}[:rules]
			asks := []core.Ask{{Charges: charges}}
			return func(key string) bool {
				charges[0].Key = key
				must(s.Take(ctx, asks))
				return asks[0].Decision.Allowed
			}
		}
	}
}

func (q quota) core() core.Quota {
	return core.Quota{Limit: q.limit, Window: q.window.Microseconds()}
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
