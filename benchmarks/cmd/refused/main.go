// Command refused measures what abusive clients cost: 50 keys over their limit send 90 % of
// the requests, 5,000 good keys send the rest, and two rules decide each request. It starts
// its own redis-server and writes two tables, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/refused
//
// The first table is of 64 callers that decide as fast as they can. The second is of a fixed
// rate, and shows how many calls Redis gets, and that a memory of refusals admits as many
// requests as the store alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/contest"
	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/refusals"
)

// The rules: the first refuses abusive keys, the second never refuses.
const (
	window   = 2 * time.Second
	perKey   = 5
	together = 100_000
)

const abusive = 50 // keys that send nine of ten requests

const (
	rateOne = "redis_rate, 1 rule"
	rateTwo = "redis_rate, 2 rules"
)

func contenders() []contest.Contender {
	each := redis_rate.Limit{Rate: perKey, Burst: perKey, Period: window}
	all := redis_rate.Limit{Rate: together, Burst: together, Period: window}
	charges := []core.Charge{
		{Policy: "bench", Rule: "key", Cost: 1, Quota: core.Quota{Limit: perKey, Window: window.Microseconds()}},
		{Policy: "bench", Rule: "global", Cost: 1, Quota: core.Quota{Limit: together, Window: window.Microseconds()}},
	}
	rules := limit.Named("bench", limit.Rule{Key: limit.ByHeader("X-API-Key"), Limit: perKey, Window: window}, limit.Global(window, together))
	quiet := slog.New(slog.DiscardHandler)
	return []contest.Contender{
		{Name: rateOne, New: contest.Rate(each)},
		{Name: rateTwo, New: contest.Rate(each, all)},
		{Name: "redisstore", New: contest.Store(func(s core.Store) core.Store { return s }, charges)},
		{Name: "refusals, guard, redisstore", New: contest.Store(func(s core.Store) core.Store {
			return refusals.New(guard.New(s, &guard.Options{Log: quiet}))
		}, charges)},
		{Name: "limit.Policy.Take, with all that", New: contest.Policy(rules, "header X-API-Key", &limit.Options{Log: quiet})},
	}
}

type options struct {
	rounds, good, rate int
	load               contest.Load
	closed, fixed      bool
}

func main() {
	o := options{load: contest.Load{Warm: window}} // so that the windows fill
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contender runs")
	flag.DurationVar(&o.load.Lasts, "time", 2*time.Second, "how long each cell is measured")
	flag.IntVar(&o.load.Callers, "goroutines", 64, "concurrent callers")
	flag.IntVar(&o.good, "good", 5_000, "good keys")
	flag.IntVar(&o.rate, "rate", 20_000, "decisions a second of the second table")
	flag.BoolVar(&o.closed, "closed", true, "write the table of callers that decide as fast as they can")
	flag.BoolVar(&o.fixed, "fixed", true, "write the table of a fixed rate")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	version, err := server.Version(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("Redis %s, %s, GOMAXPROCS %d, %d goroutines, %d abusive keys, %d good keys, %d rounds of %v\n",
		version, runtime.Version(), runtime.GOMAXPROCS(0), o.load.Callers, abusive, o.good, o.rounds, o.load.Lasts)
	o.load.Key = keys(o.good)
	if o.closed {
		results, err := contest.Run(ctx, server, contenders(), o.rounds, o.load)
		if err != nil {
			return err
		}
		fmt.Print("\nAs fast as they can\n\n")
		results.Write(os.Stdout, contenders(),
			contest.Column{Title: "1,000 decisions/s", Format: "%.0f", Value: contest.PerSecond},
			contest.Column{Title: "× " + rateTwo, Format: "%.1f", Value: contest.PerSecond, To: rateTwo},
			contest.Column{Title: "× " + rateOne, Format: "%.1f", Value: contest.PerSecond, To: rateOne},
			contest.Column{Title: "Redis calls per decision", Format: "%.4f", Value: contest.Calls},
			contest.Column{Title: "client CPU µs", Format: "%.2f", Value: contest.Client},
			contest.Column{Title: "allocations", Format: "%.1f", Value: contest.Allocs})
	}
	if o.fixed {
		o.load.Rate = o.rate
		results, err := contest.Run(ctx, server, contenders(), o.rounds, o.load)
		if err != nil {
			return err
		}
		fmt.Printf("\n%d decisions a second\n\n", o.rate)
		results.Write(os.Stdout, contenders(),
			contest.Column{Title: "1,000 decisions/s", Format: "%.1f", Value: contest.PerSecond},
			contest.Column{Title: "admitted per second", Format: "%.0f", Value: contest.Admitted},
			contest.Column{Title: "Redis calls per decision", Format: "%.4f", Value: contest.Calls},
			contest.Column{Title: "Redis CPU µs", Format: "%.2f", Value: contest.Redis},
			contest.Column{Title: "client CPU µs", Format: "%.2f", Value: contest.Client})
	}
	return nil
}

// keys returns a function that draws keys, a tenth of them good.
func keys(good int) func() string {
	names := make([]string, abusive+good)
	for i := range names {
		names[i] = "203.0." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250)
	}
	return func() string {
		n := rand.Uint64()
		if n&0xff < 26 { // a tenth
			return names[abusive+n>>8%uint64(good)]
		}
		return names[n>>8%abusive]
	}
}
