package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// The rules: the first refuses abusive keys, the second never refuses.
const (
	window   = 2 * time.Second
	perKey   = 5
	together = 100_000
)

// A decide takes one decision for a key and reports whether it was admitted.
type decide func(ctx context.Context, key string) (bool, error)

// A contender is one way to decide. make returns a function that starts a goroutine's decide.
type contender struct {
	name string
	make func(client *redis.Client) (func() decide, error)
}

const (
	rateOne = "redis_rate, 1 rule"
	rateTwo = "redis_rate, 2 rules"
)

var contenders = []contender{
	{rateOne, rate(false)},
	{rateTwo, rate(true)},
	{"redisstore", takes(func(client *redis.Client) core.Store { return store(client) })},
	{"refusals, guard, redisstore", takes(func(client *redis.Client) core.Store {
		return refusals.New(guard.New(store(client), &guard.Options{Log: quiet}))
	})},
	{"limit.Policy.Take, with all that", policy},
}

var quiet = slog.New(slog.DiscardHandler)

// store has a timeout that a pause of the machine does not reach.
func store(client *redis.Client) *redisstore.Store {
	return redisstore.New(client, &redisstore.Options{Timeout: 20 * time.Second})
}

// rate calls redis_rate once for each rule, as its README does. It asks for the second rule
// only if the first admits.
func rate(two bool) func(*redis.Client) (func() decide, error) {
	return func(client *redis.Client) (func() decide, error) {
		limiter := redis_rate.NewLimiter(client)
		each := redis_rate.Limit{Rate: perKey, Burst: perKey, Period: window}
		all := redis_rate.Limit{Rate: together, Burst: together, Period: window}
		one := func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key, each)
			if err != nil || res.Allowed == 0 || !two {
				return err == nil && res.Allowed > 0, err
			}
			res, err = limiter.Allow(ctx, "global", all)
			return err == nil && res.Allowed > 0, err
		}
		return func() decide { return one }, nil
	}
}

func takes(make func(*redis.Client) core.Store) func(*redis.Client) (func() decide, error) {
	return func(client *redis.Client) (func() decide, error) {
		store := make(client)
		return func() decide {
			charges := []core.Charge{
				{Rule: "key", Cost: 1, Quota: core.Quota{Limit: perKey, Window: window.Microseconds()}},
				{Rule: "global", Cost: 1, Quota: core.Quota{Limit: together, Window: window.Microseconds()}},
			}
			return func(ctx context.Context, key string) (bool, error) {
				charges[0].Key = key
				d, err := store.Take(ctx, "bench", charges)
				return d.Allowed, err
			}
		}, nil
	}
}

func policy(client *redis.Client) (func() decide, error) {
	limiter := limit.New(store(client), &limit.Options{Log: quiet})
	p, err := limiter.Policy(limit.Named("bench",
		limit.Rule{Key: limit.ByHeader("X-API-Key"), Limit: perKey, Window: window}, limit.Global(window, together)))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return func() decide {
		keys := map[string]string{"header X-API-Key": ""}
		return func(ctx context.Context, key string) (bool, error) {
			keys["header X-API-Key"] = key
			d, err := p.Take(ctx, limit.Request{Keys: keys})
			return d.Allowed, err
		}
	}, nil
}
