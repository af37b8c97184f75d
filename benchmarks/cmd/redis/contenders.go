package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/contest"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
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

func contenders(zset *redis.Script) []contest.Contender {
	each := redis_rate.Limit{Rate: perKey, Burst: perKey, Period: window}
	all := redis_rate.Limit{Rate: together, Burst: together, Period: window}
	return []contest.Contender{
		{Name: nameLimit, New: contest.Policy(rules(), "ip", nil)},
		{Name: nameStore, New: contest.Store(func(s core.Store) core.Store { return s }, charges())},
		{Name: namePlain, New: plainly},
		{Name: nameTwice, New: contest.Rate(each, all)},
		{Name: nameOnce, New: contest.Rate(each)},
		{Name: nameZSet, New: zsetWith(zset)},
		{Name: nameReturn1, New: contest.Nothing},
	}
}

// rules returns the two rules as a program declares them.
func rules() limit.RuleSet {
	return limit.Named("policy",
		limit.Rule{Name: "ip", Key: limit.ByIP, Limit: int64(perKey), Window: window},
		limit.Rule{Name: "global", Key: limit.Everyone, Limit: together, Window: window})
}

// charges returns the two rules for one request. The first still lacks its key.
func charges() []core.Charge {
	return []core.Charge{
		{Policy: "bench", Rule: "ip", Cost: 1, Quota: core.Quota{Limit: int64(perKey), Window: window.Microseconds()}},
		{Policy: "bench", Rule: "global", Cost: 1, Quota: core.Quota{Limit: together, Window: window.Microseconds()}},
	}
}

// plainly calls the script of the store once for each decision, without batches: the lower
// bound for a single caller.
func plainly(client *redis.Client) (func() contest.Decide, func()) {
	rules := lua.NewRules("plain", []core.Ask{{Charges: charges()}})
	script := redis.NewScript(rules.Script.Text)
	return func() contest.Decide {
		asks := []core.Ask{{Charges: charges()}}
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
}

// zsetWith keeps the log in sorted sets, with random members of 36 characters.
func zsetWith(script *redis.Script) func(*redis.Client) (func() contest.Decide, func()) {
	us := window.Microseconds()
	return contest.Alike(func(client *redis.Client) contest.Decide {
		return func(ctx context.Context, key string) (bool, error) {
			reply, err := script.Run(ctx, client, []string{"zset:{bench}:ip:" + key, "zset:{bench}:global"},
				"", 1, member(), 1, perKey, us, 1, together, us).Int64Slice()
			return err == nil && reply[1] == 1, err
		}
	})
}

// member returns 36 random characters, the length of a UUID.
func member() string {
	var raw [18]byte
	binary.BigEndian.PutUint64(raw[0:], rand.Uint64())
	binary.BigEndian.PutUint64(raw[8:], rand.Uint64())
	binary.BigEndian.PutUint16(raw[16:], uint16(rand.Uint32()))
	return hex.EncodeToString(raw[:])
}
