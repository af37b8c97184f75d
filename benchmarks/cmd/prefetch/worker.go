package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// measured is how long each process counts, after a second that it does not count.
const measured = 2 * time.Second

// A worker is one of several processes with one hot rule.
type worker struct {
	addr  string
	rate  float64 // requests a second
	limit int64   // units a second, of all processes
	hold  time.Duration
	start int64
}

// Counts are what a worker has seen.
type counts struct {
	Offered, Admitted, Calls, Taken, Returned int64
}

func (c *counts) add(o counts) {
	c.Offered += o.Offered
	c.Admitted += o.Admitted
	c.Calls += o.Calls
	c.Taken += o.Taken
	c.Returned += o.Returned
}

func bucket(limit int64) core.Quota {
	return core.Quota{Algorithm: core.TokenBucket, Limit: limit, Window: 1_000_000, Burst: limit / 4}
}

// A counted store counts its calls.
type counted struct {
	core.Store
	on                     atomic.Bool
	calls, taken, returned atomic.Int64
}

func (c *counted) Take(ctx context.Context, asks []core.Ask) error {
	err := c.Store.Take(ctx, asks)
	if c.on.Load() {
		c.calls.Add(1)
		for i := range asks {
			if err == nil && asks[i].Decision.Allowed {
				c.taken.Add(asks[i].Charges[0].Cost)
			}
		}
	}
	return err
}

func (c *counted) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	returned, err := c.Store.Return(ctx, returns)
	if err == nil && c.on.Load() {
		c.calls.Add(1)
		c.returned.Add(returned[0].Units)
	}
	return returned, err
}

// run sends requests each ms, one after the other, and writes the counts.
func (w worker) run(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: w.addr, ContextTimeoutEnabled: true})
	defer client.Close()
	inner := &counted{Store: redisstore.New(client, &redisstore.Options{Timeout: redisserver.Patience})}
	var store core.Store = refusals.New(guard.New(inner, &guard.Options{Slow: redisserver.Patience, Log: slog.New(slog.DiscardHandler)}))
	if w.hold > 0 {
		around := prefetch.New(store, &prefetch.Options{Rules: rules, Hold: w.hold})
		defer around.Close(ctx)
		store = around
	}
	charges := []core.Charge{{Policy: rules[0].Policy, Rule: rules[0].Name, Cost: 1, Quota: bucket(w.limit)}}
	next := time.UnixMicro(w.start)
	begin, end := next.Add(time.Second), next.Add(time.Second+measured)
	var c counts
	for due := 0.0; next.Before(end); next = next.Add(time.Millisecond) {
		time.Sleep(time.Until(next))
		inner.on.Store(next.After(begin))
		due += w.rate / 1000 * rand.ExpFloat64()
		for ; due >= 1; due-- {
			d, err := core.Take(ctx, store, charges)
			if err != nil {
				return err
			}
			if next.After(begin) {
				c.Offered++
				if d.Allowed {
					c.Admitted++
				}
			}
		}
	}
	c.Calls, c.Taken, c.Returned = inner.calls.Load(), inner.taken.Load(), inner.returned.Load()
	return json.NewEncoder(os.Stdout).Encode(c)
}

func readCounts(from io.Reader) (c counts, err error) {
	err = json.NewDecoder(from).Decode(&c)
	return c, err
}
