package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/redisstore"
)

// The rules that every contender enforces. The offered load stays below both, so that
// everything is admitted and all contenders do the same work.
const (
	window   = 200 * time.Millisecond
	together = 100_000
	keys     = 1_000
)

// perKey is the limit of each key.
var perKey = 100

// A decide takes one decision for a key and reports whether it was admitted.
type decide func(ctx context.Context, key string) (bool, error)

// A contender is one way to decide. start returns a decide for one goroutine. What
// goroutines share is made outside start.
type contender struct {
	name  string
	start func() decide
}

// The contenders that ratios compare.
const (
	nameLimit   = "limit, 2 rules"
	nameStore   = "redisstore alone, 2 rules"
	namePlain   = "limit's script, plain, 2 rules"
	nameZSet    = "ZSET script, 2 rules"
	nameTwice   = "redis_rate, 2 rules, two calls"
	nameOnce    = "redis_rate, 1 rule"
	nameReturn1 = "EVALSHA `return 1`"
)

func contenders(client *redis.Client, zset *redis.Script) ([]contender, error) {
	policy, err := limit.New(redisstore.New(client, &redisstore.Options{Timeout: patience}), nil).Policy(rules())
	if err != nil {
		return nil, err
	}
	return []contender{
		{nameLimit, policyWith(policy)},
		{nameStore, takeWith(redisstore.New(client, &redisstore.Options{Timeout: patience}))},
		{namePlain, plainly(client)},
		{nameTwice, rateWith(redis_rate.NewLimiter(client), true)},
		{nameOnce, rateWith(redis_rate.NewLimiter(client), false)},
		{nameZSet, zsetWith(client, zset)},
		{nameReturn1, nothing(client)},
	}, nil
}

// rules returns the two rules as a program declares them.
func rules() limit.RuleSet {
	return limit.Named("policy",
		limit.Rule{Name: "ip", Key: limit.ByIP, Limit: int64(perKey), Window: window},
		limit.Rule{Name: "global", Key: limit.Everyone, Limit: together, Window: window})
}

// policyWith decides as a program does: by a policy of limit.New with its defaults.
func policyWith(policy *limit.Policy) func() decide {
	return func() decide {
		values := make(map[string]string)
		return func(ctx context.Context, key string) (bool, error) {
			values["ip"] = key
			d, err := policy.Take(ctx, limit.Request{Keys: values})
			return d.Allowed, err
		}
	}
}

// charges returns the two rules for one request. The first still lacks its key.
func charges() []core.Charge {
	return []core.Charge{
		{Rule: "ip", Cost: 1, Quota: core.Quota{Limit: int64(perKey), Window: window.Microseconds()}},
		{Rule: "global", Cost: 1, Quota: core.Quota{Limit: together, Window: window.Microseconds()}},
	}
}

// takeWith uses the store alone, without what limit.New puts around it.
func takeWith(store core.Store) func() decide {
	return func() decide {
		mine := charges()
		return func(ctx context.Context, key string) (bool, error) {
			mine[0].Key = key
			d, err := store.Take(ctx, "bench", mine)
			return d.Allowed, err
		}
	}
}

// plainly calls the script of the store once for each decision, without batches: the lower
// bound for a single caller.
func plainly(client *redis.Client) func() decide {
	rules := lua.NewRules("plain", "bench", charges())
	script := redis.NewScript(rules.Script.Text)
	return func() decide {
		one := [][]core.Charge{charges()}
		return func(ctx context.Context, key string) (bool, error) {
			one[0][0].Key = key
			keys, args := rules.Encode("", 1, one)
			reply, err := script.Run(ctx, client, keys, args...).Int64Slice()
			if err != nil {
				return false, err
			}
			var allowed bool
			var failed error
			err = rules.Decode(reply, one, func(_ int, d core.Decision, err error) { allowed, failed = d.Allowed, err })
			if err == nil {
				err = failed
			}
			return allowed, err
		}
	}
}

// rateWith calls redis_rate once for each rule, as its users do.
func rateWith(limiter *redis_rate.Limiter, twice bool) func() decide {
	each := redis_rate.Limit{Rate: perKey, Burst: perKey, Period: window}
	all := redis_rate.Limit{Rate: together, Burst: together, Period: window}
	prefix := fmt.Sprintf("%v:", twice)
	return func() decide {
		return func(ctx context.Context, key string) (bool, error) {
			first, err := limiter.Allow(ctx, prefix+key, each)
			if err != nil || !twice {
				return err == nil && first.Allowed == 1, err
			}
			second, err := limiter.Allow(ctx, "global", all)
			return err == nil && first.Allowed == 1 && second.Allowed == 1, err
		}
	}
}

// zsetWith keeps the log in sorted sets, with random members of 36 characters.
func zsetWith(client *redis.Client, script *redis.Script) func() decide {
	us := window.Microseconds()
	return func() decide {
		return func(ctx context.Context, key string) (bool, error) {
			reply, err := script.Run(ctx, client, []string{"zset:{bench}:ip:" + key, "zset:{bench}:global"},
				"", 1, member(), 1, perKey, us, 1, together, us).Int64Slice()
			return err == nil && reply[1] == 1, err
		}
	}
}

// nothing is the lower bound: a script that does nothing, called for each decision.
func nothing(client *redis.Client) func() decide {
	script := redis.NewScript("return 1")
	return func() decide {
		return func(ctx context.Context, key string) (bool, error) {
			reply, err := script.Run(ctx, client, []string{key}).Int64()
			return reply == 1, err
		}
	}
}

// member returns 36 random characters, the length of a UUID.
func member() string {
	var raw [18]byte
	binary.BigEndian.PutUint64(raw[0:], rand.Uint64())
	binary.BigEndian.PutUint64(raw[8:], rand.Uint64())
	binary.BigEndian.PutUint16(raw[16:], uint16(rand.Uint32()))
	return hex.EncodeToString(raw[:])
}
