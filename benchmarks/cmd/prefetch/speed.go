package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/routelimit/limit/benchmarks/internal/contest"
	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/refusals"
)

const callers = 64

// hot is a quota that admits everything. An exact log has no such limits.
var hot = core.Quota{Algorithm: core.SlidingCells, Limit: 100_000_000, Window: 1_000_000, Cells: 10}

var rules = []prefetch.Rule{{Policy: "bench", Name: "global"}}

var contenders = []contest.Contender{
	{Name: "redis_rate", New: contest.Rate(redis_rate.Limit{Rate: 100_000_000, Burst: 100_000_000, Period: time.Second})},
	{Name: "EVALSHA `return 1`", New: contest.Nothing},
	takes("redisstore", func(s core.Store) core.Store { return s }),
	takes("refusals, guard, redisstore", around),
	prefetched("prefetch, chunks of 10", 10),
	prefetched("prefetch, chunks of 100", 100),
	prefetched("prefetch, chunks of 1,000", 1000),
}

func around(s core.Store) core.Store { return refusals.New(guard.New(s, nil)) }

func takes(name string, around func(core.Store) core.Store) contest.Contender {
	return contest.Contender{Name: name, New: contest.Store(around, []core.Charge{{Policy: rules[0].Policy, Rule: rules[0].Name, Quota: hot, Cost: 1}})}
}

func prefetched(name string, chunk int64) contest.Contender {
	return takes(name, func(s core.Store) core.Store {
		return prefetch.New(around(s), &prefetch.Options{Rules: rules, Chunk: chunk})
	})
}

// speed lets callers decide as fast as they can.
func speed(ctx context.Context, rounds int, lasts time.Duration) error {
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	load := contest.Load{Callers: callers, Warm: lasts / 2, Lasts: lasts, Key: func() string { return "" }}
	results, err := contest.Run(ctx, server, contenders, rounds, load)
	if err != nil {
		return err
	}
	for name, cells := range results {
		for _, c := range cells {
			if c.Admitted < 0.99*c.PerSecond {
				return fmt.Errorf("%s: %.0f of %.0f decisions a second are admitted, want all", name, c.Admitted, c.PerSecond)
			}
		}
	}
	fmt.Printf("%s, %d goroutines, GOMAXPROCS %d, %d rounds of %v\n\n", runtime.Version(), callers, runtime.GOMAXPROCS(0), rounds, lasts)
	results.Write(os.Stdout, contenders,
		contest.Column{Title: "1,000 decisions/s", Format: "%.0f", Value: contest.PerSecond},
		contest.Column{Title: "× redis_rate", Format: "%.1f", Value: contest.PerSecond, To: "redis_rate"},
		contest.Column{Title: "× redisstore", Format: "%.1f", Value: contest.PerSecond, To: "redisstore"})
	return nil
}
