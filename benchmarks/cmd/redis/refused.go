package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/refusals"
)

// quiet keeps notices off the terminal.
var quiet = slog.New(slog.DiscardHandler)

// guarded has around a store what limit.New puts there.
func guarded(s core.Store) core.Store { return refusals.New(guard.New(s, &guard.Options{Log: quiet})) }

// refused compares what abusive clients cost: 50 keys over their limit send 90 % of the
// requests, and 5,000 good keys send the rest. The first table has 64 callers that decide
// as fast as they can. The second has a fixed rate, and shows how many calls Redis gets,
// and that a memory of refusals admits as many requests as the store alone.
func (t contest) refused(ctx context.Context) error {
	rules := twoRules{window: 2 * time.Second, each: 5, together: 100_000} // the second never refuses
	each, together := rules.rates()
	contenders := []contender{
		redisRate(once, each),
		redisRate(twice, each, together),
		storeOf("redisstore", rules.charges(), nil),
		storeOf("refusals, guard, redisstore", rules.charges(), guarded),
		policyOf("limit.Policy.Take, with all that", rules.rules(), &limit.Options{Log: quiet}, onRedis),
	}
	names := stats.Addresses(5050)
	abusive, good := names[:50], names[50:]
	load := load{callers: 64, warm: rules.window, key: func() string { // windows fill during the warm-up
		if rand.IntN(10) == 0 {
			return good[rand.IntN(len(good))]
		}
		return abusive[rand.IntN(len(abusive))]
	}}
	r, err := t.run(ctx, contenders, load)
	if err != nil {
		return err
	}
	r.write(os.Stdout, contenders,
		column{title: "1,000 decisions/s", format: "%.0f", value: perSecond},
		column{title: "× " + twice, format: "%.1f", value: perSecond, to: twice},
		column{title: "× " + once, format: "%.1f", value: perSecond, to: once},
		column{title: "Redis calls per decision", format: "%.4f", value: calls},
		column{title: "client CPU µs", format: "%.2f", value: clientCPU},
		column{title: "allocations", format: "%.1f", value: allocs})

	load.rate = 20_000
	if r, err = t.run(ctx, contenders, load); err != nil {
		return err
	}
	fmt.Printf("\n%.0f decisions a second\n", load.rate)
	r.write(os.Stdout, contenders,
		column{title: "1,000 decisions/s", format: "%.1f", value: perSecond},
		column{title: "admitted per second", format: "%.0f", value: func(c cell) float64 { return c.admitted }},
		column{title: "Redis calls per decision", format: "%.4f", value: calls},
		column{title: "Redis CPU µs", format: "%.2f", value: redisCPU},
		column{title: "client CPU µs", format: "%.2f", value: clientCPU})
	return nil
}
