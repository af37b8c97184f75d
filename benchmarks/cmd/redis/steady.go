package main

import (
	"context"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// steady holds a load of 35 % of what is possible in five seconds, in memory and on Redis, and shows
// how long decisions take, up to the longest, beside a control that has no limits: the machine stalls for
// both. Its two rules are one for each of a million keys, so that the store sweeps and the garbage
// collector runs, and one for all.
func (t contest) steady(ctx context.Context) error {
	rules := limit.Named("steady", limit.PerIP(time.Second, 100), limit.Rule{
		Name: "all", Key: limit.Everyone, Limit: 1_000_000_000, Window: time.Second, Algorithm: limit.TokenBucket{}})
	options := &limit.Options{MaxKeys: 4_000_000}
	inMemory := func(*redis.Client) core.Store { return nil }
	unlimited := contender{"no limits, 1 caller", alike(func(*redis.Client) decide {
		return func(context.Context, string) (bool, error) { return true, nil }
	})}
	contenders := []contender{
		policyOf("in memory, 1 caller", rules, options, inMemory), unlimited,
		policyOf("on Redis, 64 callers", rules, options, onRedis), nothing,
	}
	t.rounds = 1
	probe := t
	probe.lasts = 5 * time.Second
	all := make(results)
	for i, callers := range []int{1, 64} {
		limited, control := contenders[2*i:2*i+1], contenders[2*i+1:2*i+2]
		load := load{callers: callers, warm: probe.lasts, key: anyOf(1_000_000)}
		highest, err := probe.run(ctx, limited, load)
		if err != nil {
			return err
		}
		load.rate, load.times = 0.35*highest[limited[0].name][0].perSecond, true
		for _, only := range [][]contender{limited, control} {
			r, err := t.run(ctx, only, load)
			if err != nil {
				return err
			}
			all[only[0].name] = r[only[0].name]
		}
	}
	all.write(os.Stdout, contenders,
		column{title: "1,000 decisions/s", format: "%.1f", value: perSecond},
		column{title: "p50 µs", format: "%.2f", value: quantile(0.5, time.Microsecond)},
		column{title: "p99 ms", format: "%.1f", value: quantile(0.99, time.Millisecond)},
		column{title: "p99.9 ms", format: "%.1f", value: quantile(0.999, time.Millisecond)},
		column{title: "p99.99 ms", format: "%.1f", value: quantile(0.9999, time.Millisecond)},
		column{title: "longest ms", format: "%.1f", value: quantile(1, time.Millisecond)},
		column{title: "longest pause of the garbage collector, at most ms", format: "%.2f", value: pause})
	return nil
}
