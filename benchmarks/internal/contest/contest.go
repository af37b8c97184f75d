// Package contest compares ways to decide on one Redis: they run in this process, one
// after the other in rounds, so that a slow phase of the machine affects them all.
package contest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/internal/histogram"
)

// A Decide takes one decision for a key and reports whether it was admitted.
type Decide func(ctx context.Context, key string) (bool, error)

// A Contender is one way to decide. New returns a function that starts a caller, and one
// that ends the contender, or nil. What callers share is made outside start.
type Contender struct {
	Name string
	New  func(*redis.Client) (start func() Decide, end func())
}

// A Load is what callers ask for.
type Load struct {
	Callers     int
	Rate        int           // decisions a second of all callers; 0 for as many as they can
	Warm, Lasts time.Duration // Warm is not measured
	Key         func() string // of the next decision
	Times       bool          // measure how long each decision takes, which costs time itself
}

// A Cell is the result of one contender in one round.
type Cell struct {
	PerSecond float64 // decisions
	Admitted  float64 // a second
	P50, P99  float64 // µs of a decision, if the load has Times
	Calls     float64 // of scripts, for a decision
	Redis     float64 // µs of processor time of the server, for a decision
	Client    float64 // µs of processor time of this process, for a decision
	Allocs    float64 // of this process, for a decision
}

// Run runs all contenders, round by round, on an empty Redis each.
func Run(ctx context.Context, server *redisserver.Server, contenders []Contender, rounds int, load Load) (Results, error) {
	r := make(Results)
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, c := range contenders {
			if err := server.Client.FlushAll(ctx).Err(); err != nil {
				return nil, err
			}
			cell, err := load.measure(ctx, server, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			r[c.Name] = append(r[c.Name], cell)
		}
	}
	return r, nil
}

// Phases of a cell.
const (
	warming int32 = iota
	measuring
	over
)

// A caller counts on a cache line of its own.
type caller struct {
	decided, admitted atomic.Int64
	times             histogram.Histogram
	err               error
	_                 [64]byte
}

// run decides until the phase is over: one decision each pause, or as fast as it can.
func (c *caller) run(ctx context.Context, decide Decide, load *Load, phase *atomic.Int32) {
	var pause, took time.Duration
	if load.Rate > 0 {
		pause = time.Second * time.Duration(load.Callers) / time.Duration(load.Rate)
	}
	next := time.Now().Add(time.Duration(rand.Int64N(int64(pause) + 1)))
	for {
		before := phase.Load()
		if before == over {
			return
		}
		if pause > 0 {
			time.Sleep(time.Until(next))
			next = next.Add(pause)
		}
		var start time.Time
		if load.Times {
			start = time.Now()
		}
		ok, err := decide(ctx, load.Key())
		if load.Times {
			took = time.Since(start)
		}
		if err != nil {
			c.err = err
			return
		}
		c.decided.Add(1)
		if ok {
			c.admitted.Add(1)
		}
		if load.Times && before == measuring && phase.Load() == measuring {
			c.times.Add(int64(took), 1)
		}
	}
}

func (load *Load) measure(ctx context.Context, server *redisserver.Server, contender Contender) (Cell, error) {
	start, end := contender.New(server.Client)
	if end != nil {
		defer end()
	}
	callers := make([]caller, load.Callers)
	var phase atomic.Int32
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() { callers[i].run(ctx, start(), load, &phase) })
	}
	time.Sleep(load.Warm)
	before, err := usageOf(ctx, server, callers)
	phase.Store(measuring)
	var after usage
	if err == nil {
		time.Sleep(load.Lasts)
		after, err = usageOf(ctx, server, callers)
	}
	phase.Store(over)
	done.Wait()
	var times histogram.Histogram
	for i := range callers {
		if callers[i].err != nil {
			return Cell{}, callers[i].err
		}
		times.Merge(&callers[i].times)
	}
	decided, seconds := after.decided-before.decided, after.at.Sub(before.at).Seconds()
	return Cell{
		PerSecond: decided / seconds,
		Admitted:  (after.admitted - before.admitted) / seconds,
		P50:       times.Quantile(0.5) / 1e3,
		P99:       times.Quantile(0.99) / 1e3,
		Calls:     (after.calls - before.calls) / decided,
		Redis:     (after.redis - before.redis) / decided * 1e6,
		Client:    (after.client - before.client).Seconds() / decided * 1e6,
		Allocs:    (after.allocs - before.allocs) / decided,
	}, err
}

// usage is the total up to a time.
type usage struct {
	at                                      time.Time
	client                                  time.Duration
	redis, decided, admitted, calls, allocs float64 // redis in seconds
}

func usageOf(ctx context.Context, server *redisserver.Server, callers []caller) (u usage, err error) {
	u.redis, err = server.CPU(ctx)
	if err == nil {
		u.calls, err = server.Calls(ctx)
	}
	if err == nil {
		u.client, err = redisserver.ProcessorTime()
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u.allocs = float64(memory.Mallocs)
	for i := range callers {
		u.decided += float64(callers[i].decided.Load())
		u.admitted += float64(callers[i].admitted.Load())
	}
	u.at = time.Now()
	return u, err
}
