package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4/middleware"
	golimiter "github.com/sethvargo/go-limiter"
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

// A contender decides in memory: with a rule for each key and, if all is not nil,
// with a second rule that all keys share.
type contender struct {
	name   string
	hot    bool // has no keys, and so takes part for one key only
	decide func(each quota, all *quota, keys int) caller
}

// A caller is called once by each goroutine. It returns the function that decides,
// which may have memory of its own, as a server has for one request.
type caller func() func(key string) bool

// alike is a caller whose decisions need no memory of their own.
func alike(decide func(string) bool) caller {
	return func() func(string) bool { return decide }
}

const (
	nameFloor     = "floor: sync.Map load and CAS"
	nameTime      = "x/time/rate, one limiter"
	nameTimeKeyed = "x/time/rate in a sync.Map"
	nameGoLimiter = "sethvargo/go-limiter"
	nameEcho      = "Echo's memory store"
	nameStore     = "memstore"
	namePolicy    = "limit.Policy.Take"
)

var contenders = []contender{
	{nameFloor, false, newFloor},
	{nameTime, true, newTime},
	{nameTimeKeyed, false, newTimeKeyed},
	{nameGoLimiter, false, newGoLimiter},
	{nameEcho, false, newEcho},
	{nameStore, false, newStore},
	{namePolicy, false, newPolicy},
}

// twice charges a second rule after the first, as stacked middleware does. A
// refusal by the second leaves the first one charged.
func twice(first, second func(string) bool) caller {
	return alike(func(key string) bool { return first(key) && second("global") })
}

// newFloor counts and never refuses: no limiter can do less.
func newFloor(_ quota, all *quota, _ int) caller {
	count := func() func(string) bool {
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
	if all == nil {
		return alike(count())
	}
	return twice(count(), count())
}

func (q quota) perSecond() rate.Limit { return rate.Every(q.window / time.Duration(q.limit)) }

func (q quota) timeRate() *rate.Limiter { return rate.NewLimiter(q.perSecond(), int(q.limit)) }

func newTime(each quota, all *quota, _ int) caller {
	first := each.timeRate()
	if all == nil {
		return alike(func(string) bool { return first.Allow() })
	}
	second := all.timeRate()
	return alike(func(string) bool { return first.Allow() && second.Allow() })
}

func newTimeKeyed(each quota, all *quota, _ int) caller {
	var limiters sync.Map
	first := func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, each.timeRate())
		}
		return l.(*rate.Limiter).Allow()
	}
	if all == nil {
		return alike(first)
	}
	second := all.timeRate()
	return twice(first, func(string) bool { return second.Allow() })
}

func newGoLimiter(each quota, all *quota, _ int) caller {
	ctx := context.Background()
	store := func(q quota) func(string) bool {
		var s golimiter.Store
		s, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.limit), Interval: q.window})
		must(err)
		return func(key string) bool {
			_, _, _, ok, err := s.Take(ctx, key)
			must(err)
			return ok
		}
	}
	if all == nil {
		return alike(store(each))
	}
	return twice(store(each), store(*all))
}

func newEcho(each quota, all *quota, _ int) caller {
	store := func(q quota) func(string) bool {
		s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
			Rate: q.perSecond(), Burst: int(q.limit), ExpiresIn: time.Hour,
		})
		return func(key string) bool {
			ok, err := s.Allow(key)
			must(err)
			return ok
		}
	}
	if all == nil {
		return alike(store(each))
	}
	return twice(store(each), store(*all))
}

// newStore decides the rules together, below the API.
func newStore(each quota, all *quota, keys int) caller {
	s := memstore.New(&memstore.Options{MaxKeys: maxKeys(keys)})
	ctx := context.Background()
	return func() func(string) bool {
		charges := []core.Charge{{Policy: "POST /update", Rule: "ip", Quota: each.core(), Cost: 1}}
		if all != nil {
			charges = append(charges, core.Charge{Policy: "POST /update", Rule: "global", Quota: all.core(), Cost: 1})
		}
		asks := []core.Ask{{Charges: charges}}
		return func(key string) bool {
			charges[0].Key = key
			must(s.Take(ctx, asks))
			return asks[0].Decision.Allowed
		}
	}
}

func (q quota) core() core.Quota {
	return core.Quota{Limit: q.limit, Window: q.window.Microseconds()}
}

// newPolicy decides the rules together, with the API.
func newPolicy(each quota, all *quota, keys int) caller {
	rules := []limit.Rule{limit.PerIP(each.window, each.limit)}
	if all != nil {
		rules = append(rules, limit.Global(all.window, all.limit))
	}
	policy, err := limit.New(nil, &limit.Options{MaxKeys: maxKeys(keys)}).Policy(limit.Named("update", rules...))
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

// maxKeys returns a MaxKeys for a number of keys: the default, if that is enough.
func maxKeys(keys int) int { return max(2*keys, memstore.DefaultMaxKeys) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
