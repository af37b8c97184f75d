package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/refusals"
)

// The contenders that ratios compare.
const (
	ours  = "limit, 2 rules"
	zset  = "ZSET script, 2 rules"
	twice = "redis_rate, 2 rules, two calls"
)

// quiet keeps notices off the terminal.
var quiet = slog.New(slog.DiscardHandler)

// admitted compares decisions by two rules, with one and with many callers. The load stays
// below both limits, so that all contenders do the same work.
func (t contest) admitted(ctx context.Context) error {
	rules := twoRules{window: 200 * time.Millisecond, each: 100, together: 100_000}
	script, err := zsetOf(rules)
	if err != nil {
		return err
	}
	contenders := []contender{policyOf(ours, rules.rules(), nil, onRedis), redisRate(twice, rules.rates()...), script}
	all := make(map[int]results)
	for _, callers := range []int{1, 64, 256} {
		load := load{callers: callers, warm: 2 * rules.window, times: true, key: anyOf(stats.Addresses(1000))}
		r, err := t.run(ctx, contenders, load)
		if err != nil {
			return err
		}
		all[callers] = r
		fmt.Printf("\n%d callers\n", callers)
		r.write(contenders,
			column{title: "1,000 decisions/s", format: "%.1f", value: perSecond},
			column{title: "p50 µs", format: "%.0f", value: quantile(0.5, time.Microsecond)},
			column{title: "p99 µs", format: "%.0f", value: quantile(0.99, time.Microsecond)},
			column{title: "Redis CPU µs", format: "%.1f", value: redisCPU},
			column{title: "decisions per call", format: "%.1f", value: func(c cell) float64 { return 1 / c.calls }},
			column{title: "admitted %", format: "%.2f", value: func(c cell) float64 { return 100 * c.admitted / c.perSecond }})
	}
	writeHead("limit, as a ratio", "to", "callers", "median (least–most)")
	for _, x := range []struct {
		what    string
		value   func(cell) float64
		to      string
		callers []int
	}{
		{"decisions/s", perSecond, twice, []int{64, 256}},
		{"p50", quantile(0.5, time.Microsecond), zset, []int{1}},
		{"Redis CPU", redisCPU, twice, []int{64, 256}},
		{"Redis CPU", redisCPU, zset, []int{1, 64, 256}},
	} {
		for _, n := range x.callers {
			fmt.Printf("| %s | %s | %d | %s |\n", x.what, x.to, n, stats.Spread("%.2f", all[n].ratios(ours, x.to, x.value)))
		}
	}
	return nil
}

// refused compares what abusive clients cost: 50 keys over their limit send 90 % of the
// requests, and 5,000 good keys send the rest.
func (t contest) refused(ctx context.Context) error {
	rules := twoRules{window: 2 * time.Second, each: 5, together: 100_000} // the second never refuses
	contenders := []contender{
		policyOf(ours, rules.rules(), &limit.Options{Log: quiet}, onRedis),
		redisRate(twice, rules.rates()...),
	}
	names := stats.Addresses(5050)
	abusive, good := anyOf(names[:50]), anyOf(names[50:])
	load := load{callers: 64, warm: rules.window, key: func() string { // windows fill during the warm-up
		if rand.IntN(10) == 0 {
			return good()
		}
		return abusive()
	}}
	r, err := t.run(ctx, contenders, load)
	if err != nil {
		return err
	}
	r.write(contenders,
		column{title: "1,000 decisions/s", format: "%.0f", value: perSecond},
		column{title: "× " + twice, format: "%.1f", value: perSecond, to: twice},
		column{title: "Redis calls per decision", format: "%.4f", value: func(c cell) float64 { return c.calls }},
		column{title: "client CPU µs", format: "%.2f", value: func(c cell) float64 { return c.client }})
	return nil
}

// hot compares decisions of 64 callers by one rule that all requests share, and shows what
// package prefetch saves.
func (t contest) hot(ctx context.Context) error {
	const peer = "redis_rate"
	shared := core.Charge{Policy: "bench", Rule: "global", Cost: 1, Quota: core.Quota{
		Algorithm: core.SlidingCells, Limit: 100_000_000, Window: 1_000_000, Cells: 10}} // it admits everything
	alone := func(s core.Store) core.Store { return s }
	chunks := func(chunk int64) func(core.Store) core.Store {
		options := &prefetch.Options{Rules: []prefetch.Rule{{Policy: "bench", Name: "global"}}, Chunk: chunk}
		return func(s core.Store) core.Store {
			return prefetch.New(refusals.New(guard.New(s, &guard.Options{Log: quiet})), options)
		}
	}
	contenders := []contender{
		redisRate(peer, redis_rate.Limit{Rate: 100_000_000, Burst: 100_000_000, Period: time.Second}),
		storeOf("redisstore", shared, alone),
		storeOf("prefetch, chunks of 10", shared, chunks(10)),
		storeOf("prefetch, chunks of 100", shared, chunks(100)),
		storeOf("prefetch, chunks of 1,000", shared, chunks(1000)),
	}
	r, err := t.run(ctx, contenders, load{callers: 64, warm: t.lasts / 2, key: func() string { return "" }})
	if err != nil {
		return err
	}
	r.write(contenders,
		column{title: "1,000 decisions/s", format: "%.0f", value: perSecond},
		column{title: "× " + peer, format: "%.1f", value: perSecond, to: peer})
	return nil
}

// steady holds a load of 70 % of what is possible in five seconds, in memory and on Redis,
// and shows how long decisions take, up to the longest. Its two rules are one for each of a
// million keys, so that the store sweeps and the garbage collector runs, and one for all.
func (t contest) steady(ctx context.Context) error {
	rules := limit.Named("steady", limit.PerIP(time.Second, 100), limit.Rule{
		Name: "all", Key: limit.Everyone, Limit: 1_000_000_000, Window: time.Second, Algorithm: limit.TokenBucket{}})
	options := &limit.Options{MaxKeys: 4_000_000}
	inMemory := func(*redis.Client) core.Store { return nil }
	contenders := []contender{
		policyOf("in memory, 1 caller", rules, options, inMemory),
		policyOf("on Redis, 64 callers", rules, options, onRedis),
	}
	t.rounds = 1
	probe := t
	probe.lasts = 5 * time.Second
	all := make(results)
	for i, callers := range []int{1, 64} {
		only := contenders[i : i+1]
		load := load{callers: callers, warm: probe.lasts, key: anyOf(stats.Addresses(1_000_000))}
		highest, err := probe.run(ctx, only, load)
		if err != nil {
			return err
		}
		name := only[0].name
		load.rate, load.times = 0.7*highest[name][0].perSecond, true
		r, err := t.run(ctx, only, load)
		if err != nil {
			return err
		}
		all[name] = r[name]
	}
	all.write(contenders,
		column{title: "1,000 decisions/s", format: "%.1f", value: perSecond},
		column{title: "p50 µs", format: "%.2f", value: quantile(0.5, time.Microsecond)},
		column{title: "p99 ms", format: "%.1f", value: quantile(0.99, time.Millisecond)},
		column{title: "p99.9 ms", format: "%.1f", value: quantile(0.999, time.Millisecond)},
		column{title: "longest ms", format: "%.1f", value: quantile(1, time.Millisecond)},
		column{title: "longest pause of the garbage collector, at most ms", format: "%.2f", value: func(c cell) float64 { return c.pause }})
	return nil
}
