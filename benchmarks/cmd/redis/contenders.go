package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/redisstore"
)

// twoRules limits each key, and all keys together, in windows of the same length.
type twoRules struct {
	window         time.Duration
	each, together int64
}

func (r twoRules) rates() (each, together redis_rate.Limit) {
	return redis_rate.Limit{Rate: int(r.each), Burst: int(r.each), Period: r.window},
		redis_rate.Limit{Rate: int(r.together), Burst: int(r.together), Period: r.window}
}

// charges returns what one request takes. The first charge still lacks its key.
func (r twoRules) charges() []core.Charge {
	return []core.Charge{
		{Policy: "bench", Rule: "ip", Cost: 1, Quota: core.Quota{Limit: r.each, Window: r.window.Microseconds()}},
		{Policy: "bench", Rule: "global", Cost: 1, Quota: core.Quota{Limit: r.together, Window: r.window.Microseconds()}},
	}
}

// rules returns the rules as a program declares them.
func (r twoRules) rules() limit.RuleSet {
	return limit.Named("bench",
		limit.Rule{Name: "ip", Key: limit.ByIP, Limit: r.each, Window: r.window},
		limit.Rule{Name: "global", Key: limit.Everyone, Limit: r.together, Window: r.window})
}

// anyOf returns a function that draws one of n addresses.
func anyOf(n int) func() string {
	names := stats.Addresses(n)
	return func() string { return names[rand.IntN(n)] }
}

// alike returns a new for callers that need no memory of their own.
func alike(make func(*redis.Client) decide) func(*redis.Client) (func() decide, func()) {
	return func(client *redis.Client) (func() decide, func()) {
		decides := make(client)
		return func() decide { return decides }, nil
	}
}

// redisRate calls redis_rate once for each rule, as its README does: for the key, and for
// all keys together if there is a second limit. It asks for that only if the first admits.
func redisRate(name string, limits ...redis_rate.Limit) contender {
	return contender{name, alike(func(client *redis.Client) decide {
		limiter := redis_rate.NewLimiter(client)
		return func(ctx context.Context, key string) (bool, error) {
			for _, limit := range limits {
				if r, err := limiter.Allow(ctx, key, limit); err != nil || r.Allowed == 0 {
					return false, err
				}
				key = "global"
			}
			return true, nil
		}
	})}
}

// nothing calls a script that does nothing for each decision: no script costs less.
var nothing = contender{"EVALSHA `return 1`", alike(func(client *redis.Client) decide {
	script := redis.NewScript("return 1")
	return func(ctx context.Context, key string) (bool, error) {
		n, err := script.Run(ctx, client, []string{key}).Int64()
		return n == 1, err
	}
})}

func onRedis(client *redis.Client) core.Store {
	return redisstore.New(client, &redisstore.Options{Timeout: patience})
}

// storeOf takes charges, of which the first has the key, from a redisstore with another
// store around it, or from the redisstore if around is nil.
func storeOf(name string, charges []core.Charge, around func(core.Store) core.Store) contender {
	return contender{name, func(client *redis.Client) (func() decide, func()) {
		store, end := onRedis(client), func() {}
		if around != nil {
			store = around(store)
		}
		if s, ok := store.(interface{ Close(context.Context) error }); ok {
			end = func() { _ = s.Close(context.Background()) }
		}
		return func() decide {
			mine := slices.Clone(charges)
			asks := []core.Ask{{Charges: mine}}
			return func(ctx context.Context, key string) (bool, error) {
				mine[0].Key = key
				err := store.Take(ctx, asks)
				return asks[0].Decision.Allowed, err
			}
		}, end
	}}
}

// policyOf decides as a program does, by a policy of limit.New.
func policyOf(name string, rules limit.RuleSet, options *limit.Options, on func(*redis.Client) core.Store) contender {
	return contender{name, func(client *redis.Client) (func() decide, func()) {
		policy, err := limit.New(on(client), options).Policy(rules)
		if err != nil {
			panic(err)
		}
		return func() decide {
			values := make(map[string]string)
			return func(ctx context.Context, key string) (bool, error) {
				values["ip"] = key
				d, err := policy.Take(ctx, limit.Request{Keys: values})
				if d.Mode == core.ModeLocal {
					err = errLocal
				}
				return d.Allowed, err
			}
		}, nil
	}}
}

// plain calls the script of the store for a lone decision each time, without batches: the
// lower bound for a single caller.
func plain(name string, two twoRules) contender {
	return contender{name, func(client *redis.Client) (func() decide, func()) {
		rules := lua.NewRules("plain", []core.Ask{{Charges: two.charges()}})
		script := redis.NewScript(rules.One.Text)
		return func() decide {
			asks := []core.Ask{{Charges: two.charges()}}
			one := [][]core.Ask{asks}
			return func(ctx context.Context, key string) (bool, error) {
				asks[0].Charges[0].Key = key
				keys, args := rules.Encode("", 1, one)
				reply, err := script.Run(ctx, client, keys, args...).Int64Slice()
				if err != nil {
					return false, err
				}
				var failed error
				err = rules.Decode(reply, one, func(_ int, err error) { failed = err })
				return asks[0].Decision.Allowed, errors.Join(err, failed)
			}
		}, nil
	}}
}
