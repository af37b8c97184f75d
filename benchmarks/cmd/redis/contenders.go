package main

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"os"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/redisstore"
)

// twoRules limits each key, and all keys together, in windows of the same length.
type twoRules struct {
	window         time.Duration
	each, together int64
}

func (r twoRules) rates() []redis_rate.Limit {
	return []redis_rate.Limit{
		{Rate: int(r.each), Burst: int(r.each), Period: r.window},
		{Rate: int(r.together), Burst: int(r.together), Period: r.window},
	}
}

// rules returns the rules as a program declares them.
func (r twoRules) rules() limit.RuleSet {
	return limit.Named("bench",
		limit.Rule{Name: "ip", Key: limit.ByIP, Limit: r.each, Window: r.window},
		limit.Rule{Name: "global", Key: limit.Everyone, Limit: r.together, Window: r.window})
}

// anyOf returns a function that draws one of the names.
func anyOf(names []string) func() string {
	return func() string { return names[mathrand.IntN(len(names))] }
}

// alike returns a new for callers that need no memory of their own.
func alike(make func(*redis.Client) decide) func(*redis.Client) func() decide {
	return func(client *redis.Client) func() decide {
		decides := make(client)
		return func() decide { return decides }
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

// zsetOf decides by the sliding log as it is usually written, in sorted sets.
func zsetOf(rules twoRules) (contender, error) {
	text, err := os.ReadFile("../stores/redisstore/testdata/zset.lua")
	script, us := redis.NewScript(string(text)), rules.window.Microseconds()
	return contender{zset, alike(func(client *redis.Client) decide {
		return func(ctx context.Context, key string) (bool, error) {
			member := (rand.Text() + rand.Text())[:36] // as long as a UUID
			reply, err := script.Run(ctx, client, []string{"zset:{bench}:ip:" + key, "zset:{bench}:global"},
				"", 1, member, 1, rules.each, us, 1, rules.together, us).Int64Slice()
			return err == nil && reply[1] == 1, err
		}
	})}, err
}

func onRedis(client *redis.Client) core.Store {
	return redisstore.New(client, &redisstore.Options{Timeout: patience})
}

// storeOf takes a charge of each key from a redisstore with another store around it.
func storeOf(name string, charge core.Charge, around func(core.Store) core.Store) contender {
	return contender{name, func(client *redis.Client) func() decide {
		store := around(onRedis(client))
		return func() decide {
			asks := []core.Ask{{Charges: []core.Charge{charge}}}
			return func(ctx context.Context, key string) (bool, error) {
				asks[0].Charges[0].Key = key
				err := store.Take(ctx, asks)
				return asks[0].Decision.Allowed, err
			}
		}
	}}
}

// policyOf decides as a program does, by a policy of limit.New.
func policyOf(name string, rules limit.RuleSet, options *limit.Options, on func(*redis.Client) core.Store) contender {
	return contender{name, func(client *redis.Client) func() decide {
		policy, err := limit.New(on(client), options).Policy(rules)
		if err != nil {
			panic(err)
		}
		return func() decide {
			values := make(map[string]string)
			return func(ctx context.Context, key string) (bool, error) {
				values["ip"] = key
				d, err := policy.Take(ctx, limit.Request{Keys: values})
				return d.Allowed, err
			}
		}
	}}
}
