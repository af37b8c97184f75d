package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/stats"
)

// The contenders that ratios compare.
const (
	ours      = "limit, 2 rules"
	storeOnly = "redisstore alone, 2 rules"
	zset      = "ZSET script, 2 rules"
	twice     = "redis_rate, 2 rules, two calls"
	once      = "redis_rate, 1 rule"
)

// admitted compares decisions by two rules, with one and with many callers. The load stays
// below both limits, so that all contenders do the same work.
func (t contest) admitted(ctx context.Context) error {
	script, err := zsetScript()
	if err != nil {
		return err
	}
	rules := twoRules{window: 200 * time.Millisecond, each: t.limit, together: 100_000}
	each, together := rules.rates()
	contenders := []contender{
		policyOf(ours, rules.rules(), nil, onRedis),
		storeOf(storeOnly, rules.charges(), nil),
		plain("limit's script, plain, 2 rules", rules),
		redisRate(twice, each, together),
		redisRate(once, each),
		zsetOf(script, rules),
		nothing,
	}
	all := make(map[int]results)
	for _, callers := range []int{1, 64, 256} {
		load := load{callers: callers, warm: 2 * rules.window, times: true, key: anyOf(1000)}
		r, err := t.run(ctx, contenders, load)
		if err != nil {
			return err
		}
		all[callers] = r
		fmt.Printf("\n%d callers\n", callers)
		r.write(os.Stdout, contenders,
			column{title: "1,000 decisions/s", format: "%.1f", value: perSecond},
			column{title: "p50 µs", format: "%.0f", value: quantile(0.5, time.Microsecond)},
			column{title: "p99 µs", format: "%.0f", value: quantile(0.99, time.Microsecond)},
			column{title: "Redis CPU µs", format: "%.1f", value: redisCPU},
			column{title: "client CPU µs", format: "%.1f", value: clientCPU},
			column{title: "allocations", format: "%.1f", value: allocs},
			column{title: "decisions per call", format: "%.1f", value: func(c cell) float64 { return 1 / c.calls }},
			column{title: "admitted %", format: "%.2f", value: admittedShare})
	}
	writeHead(os.Stdout, "limit, as a ratio", "to", "callers", "median (least–most)")
	for _, x := range []struct {
		what    string
		value   func(cell) float64
		to      string
		callers []int
	}{
		{"decisions/s", perSecond, twice, []int{64, 256}},
		{"decisions/s", perSecond, once, []int{64, 256}},
		{"decisions/s", perSecond, nothing.name, []int{256}},
		{"decisions/s", perSecond, storeOnly, []int{64}},
		{"p50", quantile(0.5, time.Microsecond), zset, []int{1}},
		{"p99", quantile(0.99, time.Microsecond), twice, []int{256}},
		{"Redis CPU", redisCPU, twice, []int{64, 256}},
		{"Redis CPU", redisCPU, zset, []int{1, 64, 256}},
		{"client CPU", clientCPU, twice, []int{64, 256}},
	} {
		for _, n := range x.callers {
			fmt.Printf("| %s | %s | %d | %s |\n", x.what, x.to, n, stats.Spread("%.2f", all[n].ratios(ours, x.to, x.value)))
		}
	}
	return nil
}

// zsetScript reads the sliding log as it is usually written, in sorted sets.
func zsetScript() (*redis.Script, error) {
	text, err := os.ReadFile("../stores/redisstore/testdata/zset.lua")
	return redis.NewScript(string(text)), err
}

func zsetOf(script *redis.Script, rules twoRules) contender {
	us := rules.window.Microseconds()
	return contender{zset, alike(func(client *redis.Client) decide {
		return func(ctx context.Context, key string) (bool, error) {
			reply, err := script.Run(ctx, client, []string{"zset:{bench}:ip:" + key, "zset:{bench}:global"},
				"", 1, member(), 1, rules.each, us, 1, rules.together, us).Int64Slice()
			return err == nil && reply[1] == 1, err
		}
	})}
}

// member returns 36 random characters, the length of a UUID.
func member() string {
	var raw [18]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}
