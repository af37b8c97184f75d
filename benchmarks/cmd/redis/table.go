package main

import (
	"fmt"
	"io"

	"github.com/routelimit/limit/benchmarks/internal/contest"
	"github.com/routelimit/limit/benchmarks/internal/stats"
)

// columns are those of the tables of decisions.
var columns = []contest.Column{
	{Title: "1,000 decisions/s", Format: "%.1f", Value: contest.PerSecond},
	{Title: "p50 µs", Format: "%.0f", Value: contest.P50},
	{Title: "p99 µs", Format: "%.0f", Value: contest.P99},
	{Title: "Redis CPU µs", Format: "%.1f", Value: contest.Redis},
	{Title: "client CPU µs", Format: "%.1f", Value: contest.Client},
	{Title: "allocations", Format: "%.1f", Value: contest.Allocs},
	{Title: "decisions per call", Format: "%.1f", Value: func(c contest.Cell) float64 { return 1 / c.Calls }},
	{Title: "admitted %", Format: "%.2f", Value: func(c contest.Cell) float64 { return 100 * c.Admitted / c.PerSecond }},
}

// A ratio compares limit with another contender.
type ratio struct {
	name    string
	callers int
	other   string
	value   func(contest.Cell) float64
}

var ratios = []ratio{
	{"decisions/s, limit to redis_rate with two calls", 64, nameTwice, contest.PerSecond},
	{"decisions/s, limit to redis_rate with two calls", 256, nameTwice, contest.PerSecond},
	{"decisions/s, limit to redis_rate with one rule", 64, nameOnce, contest.PerSecond},
	{"decisions/s, limit to redis_rate with one rule", 256, nameOnce, contest.PerSecond},
	{"decisions/s, limit to EVALSHA `return 1`", 256, nameReturn1, contest.PerSecond},
	{"p50, limit to the ZSET script", 1, nameZSet, contest.P50},
	{"Redis CPU, limit to the ZSET script", 1, nameZSet, contest.Redis},
	{"decisions/s, limit to redisstore alone", 64, nameStore, contest.PerSecond},
	{"p99, limit to redis_rate with two calls", 256, nameTwice, contest.P99},
	{"Redis CPU, limit to redis_rate with two calls", 64, nameTwice, contest.Redis},
	{"Redis CPU, limit to redis_rate with two calls", 256, nameTwice, contest.Redis},
	{"Redis CPU, limit to the ZSET script", 64, nameZSet, contest.Redis},
	{"Redis CPU, limit to the ZSET script", 256, nameZSet, contest.Redis},
}

// writeRatios writes the ratios of each round.
func writeRatios(w io.Writer, results map[int]contest.Results) {
	fmt.Fprintln(w, "\n| ratio | goroutines | median (min–max) |\n|---|---|---|")
	for _, x := range ratios {
		if r := results[x.callers]; r != nil {
			fmt.Fprintf(w, "| %s | %d | %s |\n", x.name, x.callers, stats.Spread("%.2f", r.Ratios(nameLimit, x.other, x.value)))
		}
	}
}
