package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/internal/histogram"
)

// A cell is the result of one contender in one round with one number of callers.
type cell struct {
	perSecond float64       // decisions
	p50, p99  time.Duration // of a decision
	redis     time.Duration // processor time of the server for a decision
	client    time.Duration // processor time of this process for a decision
	allocs    float64       // allocations of this process for a decision
	admitted  float64       // share of the decisions
	batch     float64       // decisions for each call of a script
}

// warm is how long a cell runs before it is measured, so that its windows fill.
const warm = 2 * window

// A caller decides in a closed loop.
type caller struct {
	times    histogram.Histogram
	admitted int64
	err      error
}

// Phases of a cell.
const (
	warming int32 = iota
	measuring
	over
)

func (c *caller) run(decide decide, names []string, phase *atomic.Int32) {
	ctx := context.Background()
	for c.err == nil {
		before := phase.Load()
		start := time.Now()
		admitted, err := decide(ctx, names[rand.IntN(len(names))])
		took := time.Since(start)
		if c.err = err; before == over {
			return
		}
		if before == measuring && phase.Load() == measuring {
			c.times.Add(int64(took), 1)
			if admitted {
				c.admitted++
			}
		}
	}
}

// measure runs a contender with a number of callers for a time.
func measure(s *server, c contender, callers int, names []string, lasts time.Duration) (cell, error) {
	all := make([]caller, callers)
	var phase atomic.Int32
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() { all[i].run(c.start(), names, &phase) })
	}
	time.Sleep(warm)
	before, err := s.usage()
	if err != nil {
		return cell{}, err
	}
	phase.Store(measuring)
	time.Sleep(lasts)
	phase.Store(over)
	after, err := s.usage()
	if err != nil {
		return cell{}, err
	}
	done.Wait()

	var times histogram.Histogram
	var admitted int64
	for i := range all {
		if all[i].err != nil {
			return cell{}, fmt.Errorf("%s: %w", c.name, all[i].err)
		}
		times.Merge(&all[i].times)
		admitted += all[i].admitted
	}
	n := times.Count()
	each := func(d time.Duration) time.Duration { return time.Duration(float64(d) / n) }
	return cell{
		perSecond: n / after.at.Sub(before.at).Seconds(),
		p50:       time.Duration(times.Quantile(0.5)),
		p99:       time.Duration(times.Quantile(0.99)),
		redis:     each(after.redis - before.redis),
		client:    each(after.client - before.client),
		allocs:    float64(after.allocs-before.allocs) / n,
		admitted:  float64(admitted) / n,
		batch:     n / (after.calls - before.calls),
	}, nil
}

// usage is the total usage up to a time.
type usage struct {
	at            time.Time
	redis, client time.Duration
	allocs        uint64
	calls         float64 // of scripts
}

func (s *server) usage() (u usage, err error) {
	u.redis, err = s.cpu()
	if err == nil {
		u.calls, err = s.calls()
	}
	if err == nil {
		u.client, err = redisserver.ProcessorTime()
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u.allocs = memory.Mallocs
	u.at = time.Now()
	return u, err
}
