package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/histogram"
	"github.com/routelimit/limit/internal/turns"
)

// A contest compares ways to decide. They run in this process, one after the other in
// rounds on one Redis, so that a slow phase of the machine affects them all.
type contest struct {
	client *redis.Client
	rounds int
	lasts  time.Duration // of one contender in one round
	limit  int64         // of each key in the contest admitted
}

// A decide takes one decision for a key and reports whether it was admitted.
type decide func(ctx context.Context, key string) (bool, error)

// errLocal is the error of a decision that was made without Redis.
var errLocal = errors.New("the decision is local")

// A contender is one way to decide. Its new returns a function that starts a caller, and
// one that ends the contender, or nil. What callers share is made outside start.
type contender struct {
	name string
	new  func(*redis.Client) (start func() decide, end func())
}

// A load is what callers ask for.
type load struct {
	callers int
	rate    float64 // decisions a second of all callers; 0 for as many as they can
	warm    time.Duration
	key     func() string // of the next decision
	times   bool          // measure how long each decision takes, which costs time itself
}

// A cell is the result of one contender in one round.
type cell struct {
	perSecond float64 // decisions
	admitted  float64 // a second
	local     float64 // the part of all decisions that were made without Redis, since it stalled
	calls     float64 // of scripts, for a decision
	redis     float64 // µs of processor time of the server, for a decision
	client    float64 // µs of processor time of this process, for a decision
	allocs    float64 // of this process, for a decision
	pause     float64 // ms; the longest of the garbage collector was no longer
	times     histogram.Histogram
}

// quantile returns the time that a part q of the decisions did not exceed.
func quantile(q float64, unit time.Duration) func(cell) float64 {
	return func(c cell) float64 { return c.times.Quantile(q) / float64(unit) }
}

// run runs all contenders, round by round, on an empty Redis each.
func (t contest) run(ctx context.Context, contenders []contender, l load) (results, error) {
	all := make(results)
	for round := range t.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, t.rounds)
		for _, c := range contenders {
			if err := t.client.FlushAll(ctx).Err(); err != nil {
				return nil, err
			}
			one, err := t.exactly(ctx, c, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			all[c.name] = append(all[c.name], one)
		}
	}
	return all, nil
}

// exactly measures a contender again if the machine has stalled for so long that many decisions were
// local, which cost less: a few times, and not if it lasts for minutes.
func (t contest) exactly(ctx context.Context, c contender, l load) (one cell, err error) {
	for tries := 0; ; tries++ {
		one, err = t.measure(ctx, c, l)
		if err != nil || one.local < 0.001 {
			return one, err
		}
		fmt.Fprintf(os.Stderr, "%s: %.1f %% of the decisions were local\n", c.name, 100*one.local)
		if tries == 4 || t.lasts >= time.Minute {
			return one, nil
		}
	}
}

// Phases of a cell.
const (
	warming int32 = iota
	measuring
	over
)

// A caller counts on a cache line of its own.
type caller struct {
	decided, admitted, local atomic.Int64
	times                    histogram.Histogram
	err                      error
	_                        [64]byte
}

// run decides until the phase is over: at the rate, or as fast as it can. With a rate,
// decisions come at their times, whether or not those before them are done, and their time
// counts from then.
func (c *caller) run(ctx context.Context, decide decide, l *load, phase *atomic.Int32) {
	pause := time.Duration(0)
	if l.rate > 0 {
		pause = time.Duration(float64(l.callers) / l.rate * float64(time.Second))
	}
	due := time.Now().Add(time.Duration(rand.Int64N(int64(pause) + 1)))
	for {
		before := phase.Load()
		if before == over {
			return
		}
		var began time.Time
		switch {
		case pause > 0:
			began = wait(due)
			due = due.Add(pause)
		case l.times:
			began = time.Now()
		}
		ok, err := decide(ctx, l.key())
		switch {
		case errors.Is(err, errLocal):
			c.local.Add(1)
		case err != nil:
			c.err = err
			return
		}
		c.decided.Add(1)
		if ok {
			c.admitted.Add(1)
		}
		if l.times && before == measuring && phase.Load() == measuring {
			c.times.Add(int64(time.Since(began)))
		}
	}
}

// wait returns when a decision is due: at its time, or when its caller awakes after it,
// since the timers of the machine are not what is measured.
func wait(due time.Time) time.Time {
	if early := time.Until(due); early > time.Millisecond {
		time.Sleep(early)
		return time.Now()
	}
	for time.Until(due) > 0 { // shorter than timers keep
		runtime.Gosched()
	}
	return due
}

func (t contest) measure(ctx context.Context, c contender, l load) (cell, error) {
	start, end := c.new(t.client)
	if end != nil {
		defer end()
	}
	callers := make([]caller, l.callers)
	var phase atomic.Int32
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() { callers[i].run(ctx, start(), &l, &phase) })
	}
	time.Sleep(l.warm)
	before, err := t.usage(ctx, callers)
	phase.Store(measuring)
	time.Sleep(t.lasts)
	after, failed := t.usage(ctx, callers)
	phase.Store(over)
	done.Wait()
	if err := errors.Join(err, failed); err != nil {
		return cell{}, err
	}
	decided, seconds := after.decided-before.decided, after.at.Sub(before.at).Seconds()
	result := cell{
		perSecond: decided / seconds,
		admitted:  (after.admitted - before.admitted) / seconds,
		local:     (after.local - before.local) / decided,
		calls:     (after.calls - before.calls) / decided,
		redis:     (after.redis - before.redis) / decided * 1e6,
		client:    (after.client - before.client) / decided * 1e6,
		allocs:    (after.allocs - before.allocs) / decided,
	}
	for i, count := range after.pauses.Counts {
		if count > before.pauses.Counts[i] {
			result.pause = after.pauses.Buckets[i+1] * 1e3
		}
	}
	for i := range callers {
		if callers[i].err != nil {
			return cell{}, callers[i].err
		}
		result.times.Merge(&callers[i].times)
	}
	return result, nil
}

// usage is the total up to a time; redis and client are processor time in seconds.
type usage struct {
	at                                                     time.Time
	redis, client, calls, allocs, decided, admitted, local float64
	pauses                                                 *metrics.Float64Histogram
}

func (t contest) usage(ctx context.Context, callers []caller) (u usage, err error) {
	info := t.client.InfoMap(ctx, "all")
	if err := info.Err(); err != nil {
		return u, err
	}
	client, err := turns.Time()
	if err != nil {
		return u, err
	}
	u.client = client.Seconds()
	u.redis = number(info.Item("CPU", "used_cpu_sys")) + number(info.Item("CPU", "used_cpu_user"))
	u.calls = number(strings.TrimPrefix(info.Item("Commandstats", "cmdstat_evalsha"), "calls="))
	runs := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"},
		{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(runs)
	u.allocs, u.pauses = float64(runs[0].Value.Uint64()+runs[1].Value.Uint64()), runs[2].Value.Float64Histogram()
	for i := range callers {
		u.decided += float64(callers[i].decided.Load())
		u.admitted += float64(callers[i].admitted.Load())
		u.local += float64(callers[i].local.Load())
	}
	u.at = time.Now()
	return u, nil
}

// number returns the number that a field of INFO begins with, and 0 for a missing field:
// a script that was never called has no statistics.
func number(field string) float64 {
	first, _, _ := strings.Cut(field, ",")
	n, _ := strconv.ParseFloat(first, 64)
	return n
}
