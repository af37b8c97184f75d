// Command steady holds a steady load of 70 % of what is possible for a long time, in
// memory and on a redis-server of its own, and prints how long decisions took, up to the
// longest:
//
//	cd benchmarks && go run ./cmd/steady -time 10m
//
// Two rules decide each request: one for each of a million keys, with ever new ones
// so that the store sweeps and the garbage collector runs, and one for all. The
// load is open: requests come at their times, whether or not those before them are done,
// and the time of a request counts from then. A caller that has slept counts from when
// it awoke, since the timers of the machine are not what is measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/histogram"
	"github.com/routelimit/limit/stores/redisstore"
)

func main() {
	lasts := flag.Duration("time", 10*time.Minute, "how long each case runs")
	load := flag.Float64("load", 0.7, "the part of the highest rate")
	flag.Parse()
	if err := run(*lasts, *load); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	keys    = 1_000_000
	warm    = 5 * time.Second
	maxKeys = 4 * keys
)

func run(lasts time.Duration, load float64) error {
	fmt.Println("| | decisions/s | p50 | p99 | p99.9 | p99.99 | longest | collections | longest pause of one |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	if err := report("in memory, 1 caller", nil, 1, lasts, load); err != nil {
		return err
	}
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	return report("on Redis, 64 callers", redisstore.New(server.Client, nil), 64, lasts, load)
}

func report(name string, store core.Store, callers int, lasts time.Duration, load float64) error {
	limiter := limit.New(store, &limit.Options{MaxKeys: maxKeys})
	policy, err := limiter.Policy(limit.Named("steady", limit.PerUser(time.Second, 100), limit.Rule{
		Name: "all", Key: limit.Everyone, Limit: 1_000_000_000, Window: time.Second, Algorithm: limit.TokenBucket{}}))
	if err != nil {
		return err
	}
	highest, _, err := decide(policy, callers, warm, 0)
	if err != nil {
		return err
	}
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	rate, times, err := decide(policy, callers, lasts, load*highest)
	if err != nil {
		return err
	}
	debug.ReadGCStats(&after)
	var pause time.Duration
	for _, p := range after.Pause[:min(len(after.Pause), int(after.NumGC-before.NumGC))] {
		pause = max(pause, p)
	}
	fmt.Printf("| %s | %.0f |", name, rate)
	for _, q := range []float64{0.5, 0.99, 0.999, 0.9999, 1} {
		fmt.Printf(" %v |", time.Duration(times.Quantile(q)).Round(time.Microsecond/10))
	}
	fmt.Printf(" %d | %v |\n", after.NumGC-before.NumGC, pause)
	return nil
}

// decide makes decisions at a rate, or as many as it can if that is 0, and returns how
// many a second there were, and how long each took.
func decide(policy *limit.Policy, callers int, lasts time.Duration, rate float64) (perSecond float64, times *histogram.Histogram, err error) {
	all := make([]histogram.Histogram, callers)
	errs := make([]error, callers)
	began := time.Now()
	var done sync.WaitGroup
	for c := range callers {
		done.Go(func() {
			user := make(map[string]string)
			for i := 0; errs[c] == nil; i++ {
				due := time.Now()
				if rate > 0 {
					due = began.Add(time.Duration(float64(i*callers+c) / rate * float64(time.Second)))
					due = wait(due)
				}
				if due.Sub(began) >= lasts {
					return
				}
				user["user"] = strconv.Itoa((i*callers + c) * 7919 % keys)
				_, errs[c] = policy.Take(context.Background(), limit.Request{Keys: user})
				all[c].Add(int64(time.Since(due)), 1)
			}
		})
	}
	done.Wait()
	took := time.Since(began)
	for c := range callers {
		if errs[c] != nil {
			return 0, nil, errs[c]
		}
		if c > 0 {
			all[0].Merge(&all[c])
		}
	}
	return all[0].Count() / took.Seconds(), &all[0], nil
}

// wait returns when a request is due: at its time, or when its caller awakes after it.
func wait(due time.Time) time.Time {
	early := time.Until(due)
	if early <= 0 {
		return due
	}
	if early < time.Millisecond { // shorter than timers keep
		for time.Until(due) > 0 {
			runtime.Gosched()
		}
		return due
	}
	time.Sleep(early)
	return time.Now()
}
