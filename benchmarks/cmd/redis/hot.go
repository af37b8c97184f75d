package main

import (
	"context"
	"os"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/prefetch"
)

// hot compares decisions of 64 callers by one rule that all requests share, and shows what
// package prefetch saves.
func (t contest) hot(ctx context.Context) error {
	const rate, store = "redis_rate", "redisstore"
	shared := []core.Charge{{Policy: "bench", Rule: "global", Cost: 1, Quota: core.Quota{
		Algorithm: core.SlidingCells, Limit: 100_000_000, Window: 1_000_000, Cells: 10}}} // it admits everything
	chunks := func(chunk int64) func(core.Store) core.Store {
		options := &prefetch.Options{Rules: []prefetch.Rule{{Policy: "bench", Name: "global"}}, Chunk: chunk}
		return func(s core.Store) core.Store { return prefetch.New(guarded(s), options) }
	}
	contenders := []contender{
		redisRate(rate, redis_rate.Limit{Rate: 100_000_000, Burst: 100_000_000, Period: time.Second}),
		nothing,
		storeOf(store, shared, nil),
		storeOf("refusals, guard, redisstore", shared, guarded),
		storeOf("prefetch, chunks of 10", shared, chunks(10)),
		storeOf("prefetch, chunks of 100", shared, chunks(100)),
		storeOf("prefetch, chunks of 1,000", shared, chunks(1000)),
	}
	r, err := t.run(ctx, contenders, load{callers: 64, warm: t.lasts / 2, key: func() string { return "" }})
	if err != nil {
		return err
	}
	r.write(os.Stdout, contenders,
		column{title: "1,000 decisions/s", format: "%.0f", value: perSecond},
		column{title: "× " + rate, format: "%.1f", value: perSecond, to: rate},
		column{title: "× " + store, format: "%.1f", value: perSecond, to: store},
		column{title: "admitted %", format: "%.2f", value: admittedShare})
	return nil
}
