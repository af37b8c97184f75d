package contest

import (
	"context"
	"slices"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/redisstore"
)

// Alike returns a New for callers that need no memory of their own.
func Alike(make func(*redis.Client) Decide) func(*redis.Client) (func() Decide, func()) {
	return func(client *redis.Client) (func() Decide, func()) {
		decide := make(client)
		return func() Decide { return decide }, nil
	}
}

// Rate calls redis_rate once for each rule, as its README does: for the key, and for all
// keys together if there is a second limit. It asks for that only if the first admits.
func Rate(limits ...redis_rate.Limit) func(*redis.Client) (func() Decide, func()) {
	return Alike(func(client *redis.Client) Decide {
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
	})
}

// Nothing calls a script that does nothing for each decision: no script costs less.
var Nothing = Alike(func(client *redis.Client) Decide {
	script := redis.NewScript("return 1")
	return func(ctx context.Context, key string) (bool, error) {
		n, err := script.Run(ctx, client, []string{key}).Int64()
		return n == 1, err
	}
})

// Store takes charges, of which the first has the key, from a redisstore with another
// store around it.
func Store(around func(core.Store) core.Store, charges []core.Charge) func(*redis.Client) (func() Decide, func()) {
	return func(client *redis.Client) (func() Decide, func()) {
		store := around(redisstore.New(client, &redisstore.Options{Timeout: redisserver.Patience}))
		end := func() {
			if s, ok := store.(interface{ Close(context.Context) error }); ok {
				_ = s.Close(context.Background())
			}
		}
		return func() Decide {
			mine := slices.Clone(charges)
			asks := []core.Ask{{Charges: mine}}
			return func(ctx context.Context, key string) (bool, error) {
				mine[0].Key = key
				err := store.Take(ctx, asks)
				return asks[0].Decision.Allowed, err
			}
		}, end
	}
}

// Policy decides as a program does, by a policy of limit.New. The rules are named, and
// the first is by the key with the given name.
func Policy(rules limit.RuleSet, name string, options *limit.Options) func(*redis.Client) (func() Decide, func()) {
	return func(client *redis.Client) (func() Decide, func()) {
		policy, err := limit.New(redisstore.New(client, &redisstore.Options{Timeout: redisserver.Patience}), options).Policy(rules)
		if err != nil {
			panic(err)
		}
		return func() Decide {
			values := make(map[string]string)
			return func(ctx context.Context, key string) (bool, error) {
				values[name] = key
				d, err := policy.Take(ctx, limit.Request{Keys: values})
				return d.Allowed, err
			}
		}, nil
	}
}
