package main

import (
	"fmt"
	"io"
	"time"

	"github.com/routelimit/limit/benchmarks/internal/stats"
)

// results are the cells of all rounds, by callers and contender.
type results map[int]map[string][]cell

func of(cells []cell, value func(cell) float64) []float64 {
	var out []float64
	for _, c := range cells {
		out = append(out, value(c))
	}
	return out
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func perSecond(c cell) float64   { return c.perSecond / 1000 }
func p50(c cell) float64         { return us(c.p50) }
func p99(c cell) float64         { return us(c.p99) }
func redisCPU(c cell) float64    { return us(c.redis) }
func clientCPU(c cell) float64   { return us(c.client) }
func allocations(c cell) float64 { return c.allocs }
func batch(c cell) float64       { return c.batch }
func admitted(c cell) float64    { return 100 * c.admitted }

// writeCells writes one table for each number of callers.
func (r results) writeCells(w io.Writer, all []contender, callers []int) {
	for _, g := range callers {
		fmt.Fprintf(w, "\n%d goroutines\n\n", g)
		fmt.Fprintln(w, "| | 1,000 decisions/s | p50 µs | p99 µs | Redis CPU µs | client CPU µs | allocations | decisions per call | admitted % |")
		fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
		for _, c := range all {
			cells := r[g][c.name]
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", c.name,
				stats.Spread("%.1f", of(cells, perSecond)),
				stats.Spread("%.0f", of(cells, p50)),
				stats.Spread("%.0f", of(cells, p99)),
				stats.Spread("%.1f", of(cells, redisCPU)),
				stats.Spread("%.1f", of(cells, clientCPU)),
				stats.Median("%.1f", of(cells, allocations)),
				stats.Median("%.1f", of(cells, batch)),
				stats.Median("%.2f", of(cells, admitted)))
		}
	}
}

// A ratio compares limit with another contender.
type ratio struct {
	name    string
	callers int
	other   string
	value   func(cell) float64
}

var ratios = []ratio{
	{"decisions/s, limit to redis_rate with two calls", 64, nameTwice, perSecond},
	{"decisions/s, limit to redis_rate with two calls", 256, nameTwice, perSecond},
	{"decisions/s, limit to redis_rate with one rule", 64, nameOnce, perSecond},
	{"decisions/s, limit to redis_rate with one rule", 256, nameOnce, perSecond},
	{"decisions/s, limit to EVALSHA `return 1`", 256, nameReturn1, perSecond},
	{"p50, limit to the ZSET script", 1, nameZSet, p50},
	{"Redis CPU, limit to the ZSET script", 1, nameZSet, redisCPU},
	{"decisions/s, limit to redisstore alone", 64, nameStore, perSecond},
	{"p99, limit to redis_rate with two calls", 256, nameTwice, p99},
	{"Redis CPU, limit to redis_rate with two calls", 64, nameTwice, redisCPU},
	{"Redis CPU, limit to redis_rate with two calls", 256, nameTwice, redisCPU},
	{"Redis CPU, limit to the ZSET script", 64, nameZSet, redisCPU},
	{"Redis CPU, limit to the ZSET script", 256, nameZSet, redisCPU},
}

// writeRatios writes the ratios of each round.
func (r results) writeRatios(w io.Writer) {
	fmt.Fprintln(w, "\n| ratio | goroutines | median (min–max) |")
	fmt.Fprintln(w, "|---|---|---|")
	for _, x := range ratios {
		ours, theirs := r[x.callers][nameLimit], r[x.callers][x.other]
		if len(ours) == 0 {
			continue
		}
		values := stats.Ratios(of(ours, x.value), of(theirs, x.value))
		fmt.Fprintf(w, "| %s | %d | %s |\n", x.name, x.callers, stats.Spread("%.2f", values))
	}
}
