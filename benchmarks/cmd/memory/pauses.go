package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// writePauses writes how long the slowest decisions take while a store of a million
// keys grows, and while it drops keys that have expired for new ones. The garbage
// collector is off: its pauses are those of the program, and not of a sweep. Beside
// it is the longest pause of a loop that only reads the clock, which is that of the
// machine.
//
// These are wall times. They include scheduling by the system and page faults, so
// the slowest is not that of a sweep. TestSweepIsBounded of package memstore bounds
// the work of one.
func writePauses(w io.Writer, rounds int) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const keys = 1_000_000
	names := make([]string, 2*keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	var idle, grow, sweep, grow4, sweep4 []float64
	for range rounds {
		now := int64(1)
		s := memstore.New(&memstore.Options{MaxKeys: 2 * keys, Now: func() int64 { return now }})
		charges := []core.Charge{{Policy: "POST /update", Rule: "ip", Quota: core.Quota{Limit: 5, Window: 1_000_000}, Cost: 1}}
		asks := []core.Ask{{Charges: charges}}
		take := func(key string) {
			charges[0].Key = key
			must(s.Take(context.Background(), asks))
		}
		_, longest := slowest(names[:keys], func(string) {})
		idle = append(idle, longest)
		p9999, worst := slowest(names[:keys], take)
		grow, grow4 = append(grow, worst), append(grow4, p9999)
		now += 2_000_000 // all keys have expired
		p9999, worst = slowest(names[keys:], take)
		sweep, sweep4 = append(sweep, worst), append(sweep4, p9999)
		debug.FreeOSMemory()
	}
	fmt.Fprintf(w, "\n### Pauses (wall time, with scheduling and page faults)\n\n| 1,000,000 decisions on new keys | p99.99 µs | slowest µs |\n|---|---|---|\n")
	fmt.Fprintf(w, "| reading the clock only | – | %s |\n", stats.Spread("%.0f", idle))
	fmt.Fprintf(w, "| the store grows from 0 to a million keys | %s | %s |\n", stats.Spread("%.1f", grow4), stats.Spread("%.0f", grow))
	fmt.Fprintf(w, "| a million expired keys are dropped | %s | %s |\n", stats.Spread("%.1f", sweep4), stats.Spread("%.0f", sweep))
}

// slowest calls f for each key, and returns the 99.99th percentile and the longest of
// the times, in µs.
func slowest(keys []string, f func(string)) (p9999, longest float64) {
	times := make([]time.Duration, len(keys))
	last := time.Now()
	for i, key := range keys {
		f(key)
		now := time.Now()
		times[i], last = now.Sub(last), now
	}
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return us(times[len(times)-1-len(times)/10_000]), us(times[len(times)-1])
}
