package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

const (
	callers  = 64
	patience = 20 * time.Second // a pause of the machine must not end a run
)

// hot is a quota that admits everything. An exact log has no such limits.
var hot = core.Quota{Algorithm: core.SlidingCells, Limit: 100_000_000, Window: 1_000_000, Cells: 10}

var rules = []prefetch.Rule{{Policy: "bench", Name: "global"}}

// A decide decides a request. stop ends a contender.
type decide func(ctx context.Context) (bool, error)

type contender struct {
	name string
	make func(*redis.Client) (d decide, stop func())
}

var contenders = []contender{
	{"redis_rate", func(client *redis.Client) (decide, func()) {
		limiter := redis_rate.NewLimiter(client)
		limit := redis_rate.Limit{Rate: 100_000_000, Burst: 100_000_000, Period: time.Second}
		return func(ctx context.Context) (bool, error) {
			r, err := limiter.Allow(ctx, "global", limit)
			return err == nil && r.Allowed == 1, err
		}, func() {}
	}},
	{"EVALSHA `return 1`", func(client *redis.Client) (decide, func()) {
		script := redis.NewScript("return 1")
		return func(ctx context.Context) (bool, error) {
			n, err := script.Run(ctx, client, []string{"global"}).Int64()
			return n == 1, err
		}, func() {}
	}},
	{"redisstore", takes(func(s core.Store) core.Store { return s })},
	{"refusals, guard, redisstore", takes(func(s core.Store) core.Store { return refusals.New(guard.New(s, nil)) })},
	{"prefetch, chunks of 10", prefetched(10)},
	{"prefetch, chunks of 100", prefetched(100)},
	{"prefetch, chunks of 1,000", prefetched(1000)},
}

func prefetched(chunk int64) func(*redis.Client) (decide, func()) {
	return takes(func(s core.Store) core.Store {
		return prefetch.New(refusals.New(guard.New(s, nil)), &prefetch.Options{Rules: rules, Chunk: chunk})
	})
}

func takes(around func(core.Store) core.Store) func(*redis.Client) (decide, func()) {
	return func(client *redis.Client) (decide, func()) {
		store := around(redisstore.New(client, &redisstore.Options{Timeout: patience}))
		charges := []core.Charge{{Rule: rules[0].Name, Quota: hot, Cost: 1}}
		return func(ctx context.Context) (bool, error) {
				d, err := store.Take(ctx, rules[0].Policy, charges)
				return d.Allowed, err
			}, func() {
				if p, ok := store.(*prefetch.Store); ok {
					p.Close(context.Background())
				}
			}
	}
}

// speed lets callers decide as fast as they can.
func speed(ctx context.Context, rounds int, lasts time.Duration) error {
	client, stop, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer stop()
	results := make(map[string][]float64)
	for range rounds {
		for _, c := range contenders {
			if err := client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			perSecond, err := measure(ctx, c, client, lasts)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], perSecond/1000)
		}
	}
	fmt.Printf("%s, %d goroutines, GOMAXPROCS %d, %d rounds of %v\n\n", runtime.Version(), callers, runtime.GOMAXPROCS(0), rounds, lasts)
	fmt.Println("| | 1,000 decisions/s | × redis_rate | × redisstore |\n|---|---|---|---|")
	for _, c := range contenders {
		mine := results[c.name]
		fmt.Printf("| %s | %s | %s | %s |\n", c.name, stats.Spread("%.0f", mine),
			stats.Spread("%.1f", stats.Ratios(mine, results["redis_rate"])), stats.Spread("%.1f", stats.Ratios(mine, results["redisstore"])))
	}
	return nil
}

func measure(ctx context.Context, c contender, client *redis.Client, lasts time.Duration) (float64, error) {
	decide, stop := c.make(client)
	defer stop()
	var over atomic.Bool
	var counts [callers]struct {
		n   atomic.Int64
		err error
		_   [64]byte // a cache line of its own
	}
	var wait sync.WaitGroup
	for i := range counts {
		mine := &counts[i]
		wait.Go(func() {
			for !over.Load() {
				ok, err := decide(ctx)
				if err != nil || !ok {
					mine.err = fmt.Errorf("admitted: %v, %w", ok, err)
					return
				}
				mine.n.Add(1)
			}
		})
	}
	total := func() (n int64) {
		for i := range counts {
			n += counts[i].n.Load()
		}
		return n
	}
	time.Sleep(lasts / 2)
	before, began := total(), time.Now()
	time.Sleep(lasts)
	n, took := total()-before, time.Since(began)
	over.Store(true)
	wait.Wait()
	for i := range counts {
		if counts[i].err != nil {
			return 0, counts[i].err
		}
	}
	return float64(n) / took.Seconds(), nil
}
