package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
)

// abusive keys send nine of ten requests.
const abusive = 50

// A cell is the result of one contender in one round.
type cell struct {
	perSecond float64 // decisions
	admitted  float64 // a second
	calls     float64 // of scripts, for a decision
	redis     float64 // µs of processor time of the server, for a decision
	client    float64 // µs of processor time of this process, for a decision
	allocs    float64 // of this process, for a decision
}

// A caller counts on a cache line of its own.
type caller struct {
	decided, admitted atomic.Int64
	err               error
	_                 [64]byte
}

// run decides until over is set: one decision each pause, or as fast as it can.
func (c *caller) run(ctx context.Context, decide decide, keys []string, pause time.Duration, over *atomic.Bool) {
	good := len(keys) - abusive
	next := time.Now().Add(time.Duration(rand.Int64N(int64(pause) + 1)))
	for !over.Load() {
		if pause > 0 {
			time.Sleep(time.Until(next))
			next = next.Add(pause)
		}
		n := rand.Uint64()
		key := keys[n>>8%abusive]
		if n&0xff < 26 { // a tenth
			key = keys[abusive+n>>8%uint64(good)]
		}
		ok, err := decide(ctx, key)
		if err != nil {
			c.err = err
			return
		}
		c.decided.Add(1)
		if ok {
			c.admitted.Add(1)
		}
	}
}

// measure runs a contender, at a rate of all callers together, or at none.
func (o options) measure(ctx context.Context, client *redis.Client, c contender, rate int) (cell, error) {
	start, err := c.make(client)
	if err != nil {
		return cell{}, err
	}
	keys := make([]string, abusive+o.good)
	for i := range keys {
		keys[i] = "203.0." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250)
	}
	var pause time.Duration
	if rate > 0 {
		pause = time.Second * time.Duration(o.callers) / time.Duration(rate)
	}
	callers := make([]caller, o.callers)
	var over atomic.Bool
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() { callers[i].run(ctx, start(), keys, pause, &over) })
	}
	time.Sleep(window) // so that the windows fill
	before, err := usageOf(ctx, client, callers)
	if err != nil {
		return cell{}, err
	}
	time.Sleep(o.lasts)
	after, err := usageOf(ctx, client, callers)
	over.Store(true)
	done.Wait()
	for i := range callers {
		if callers[i].err != nil {
			return cell{}, callers[i].err
		}
	}
	decided, seconds := after.decided-before.decided, after.at.Sub(before.at).Seconds()
	return cell{
		perSecond: decided / seconds,
		admitted:  (after.admitted - before.admitted) / seconds,
		calls:     (after.calls - before.calls) / decided,
		redis:     (after.redis - before.redis) / decided,
		client:    (after.client - before.client) / decided,
		allocs:    (after.allocs - before.allocs) / decided,
	}, err
}

// usage is the total up to a time.
type usage struct {
	at                                              time.Time
	decided, admitted, calls, redis, client, allocs float64
}

func usageOf(ctx context.Context, client *redis.Client, callers []caller) (u usage, err error) {
	stats, err := redisserver.Field(ctx, client, "commandstats", "cmdstat_evalsha")
	if err != nil {
		return u, err
	}
	count, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
	if u.calls, err = strconv.ParseFloat(count, 64); err != nil {
		return u, err
	}
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		text, err := redisserver.Field(ctx, client, "cpu", name)
		if err != nil {
			return u, err
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return u, err
		}
		u.redis += seconds * 1e6
	}
	self, err := redisserver.ProcessorTime()
	if err != nil {
		return u, err
	}
	u.client = float64(self.Nanoseconds()) / 1e3
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u.allocs = float64(memory.Mallocs)
	for i := range callers {
		u.decided += float64(callers[i].decided.Load())
		u.admitted += float64(callers[i].admitted.Load())
	}
	u.at = time.Now()
	return u, nil
}
