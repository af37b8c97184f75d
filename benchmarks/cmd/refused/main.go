// Command refused measures what abusive clients cost: 50 keys over their limit send 90 % of
// the requests, 5,000 good keys send the rest, and two rules decide each request. It starts
// its own redis-server and writes two tables, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/refused
//
// The first table is of 64 callers that decide as fast as they can. The second is of a fixed
// rate, and shows how many calls Redis gets, and that a memory of refusals admits as many
// requests as the store alone. All contenders run in this process, one after the other in
// rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/benchmarks/internal/stats"
)

type options struct {
	rounds, callers, good, rate int
	lasts                       time.Duration
	closed, fixed               bool
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contender runs")
	flag.DurationVar(&o.lasts, "time", 2*time.Second, "how long each cell is measured")
	flag.IntVar(&o.callers, "goroutines", 64, "concurrent callers")
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
	client, stop, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer stop()
	version, err := redisserver.Field(ctx, client, "server", "redis_version")
	if err != nil {
		return err
	}
	fmt.Printf("Redis %s, %s, GOMAXPROCS %d, %d goroutines, %d abusive keys, %d good keys, %d rounds of %v\n",
		version, runtime.Version(), runtime.GOMAXPROCS(0), o.callers, abusive, o.good, o.rounds, o.lasts)
	if o.closed {
		cells, err := o.compare(ctx, client, 0)
		if err != nil {
			return err
		}
		o.writeClosed(cells)
	}
	if o.fixed {
		cells, err := o.compare(ctx, client, o.rate)
		if err != nil {
			return err
		}
		o.writeFixed(cells)
	}
	return nil
}

// compare runs all contenders, round by round, and returns the cells of each.
func (o options) compare(ctx context.Context, client *redis.Client, rate int) (map[string][]cell, error) {
	cells := make(map[string][]cell)
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for _, c := range contenders {
			if err := client.FlushAll(ctx).Err(); err != nil {
				return nil, err
			}
			cell, err := o.measure(ctx, client, c, rate)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			cells[c.name] = append(cells[c.name], cell)
		}
	}
	return cells, nil
}

func of(cells []cell, value func(cell) float64) []float64 {
	var out []float64
	for _, c := range cells {
		out = append(out, value(c))
	}
	return out
}

func perSecond(c cell) float64   { return c.perSecond / 1000 }
func calls(c cell) float64       { return c.calls }
func admitted(c cell) float64    { return c.admitted }
func redisCPU(c cell) float64    { return c.redis }
func clientCPU(c cell) float64   { return c.client }
func allocations(c cell) float64 { return c.allocs }

func (o options) writeClosed(cells map[string][]cell) {
	fmt.Println("\nAs fast as they can\n\n| | 1,000 decisions/s | × redis_rate, 2 rules | × redis_rate, 1 rule | Redis calls per decision | client CPU µs | allocations |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, c := range contenders {
		mine := of(cells[c.name], perSecond)
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", c.name, stats.Spread("%.0f", mine),
			stats.Spread("%.1f", stats.Ratios(mine, of(cells[rateTwo], perSecond))),
			stats.Spread("%.1f", stats.Ratios(mine, of(cells[rateOne], perSecond))),
			stats.Spread("%.4f", of(cells[c.name], calls)),
			stats.Spread("%.2f", of(cells[c.name], clientCPU)),
			stats.Median("%.1f", of(cells[c.name], allocations)))
	}
}

func (o options) writeFixed(cells map[string][]cell) {
	fmt.Printf("\n%d decisions a second\n\n| | 1,000 decisions/s | admitted per second | Redis calls per decision | Redis CPU µs | client CPU µs |\n", o.rate)
	fmt.Println("|---|---|---|---|---|---|")
	for _, c := range contenders {
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", c.name,
			stats.Spread("%.1f", of(cells[c.name], perSecond)),
			stats.Spread("%.0f", of(cells[c.name], admitted)),
			stats.Spread("%.4f", of(cells[c.name], calls)),
			stats.Spread("%.2f", of(cells[c.name], redisCPU)),
			stats.Spread("%.2f", of(cells[c.name], clientCPU)))
	}
}
