package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/redisstore"
)

// redisCases decide on one Redis, by its clock, which no case can set. So windows are an
// hour, and the number of calls is such that no log gets full.
type redisCases struct {
	client *redis.Client
	lasts  time.Duration
}

const (
	lone     = 1000      // calls that a time is the mean of
	patience = time.Hour // no time limit, which would need a timer
)

func hourly(s shape) []core.Charge {
	charges := s.charges()
	for i := range charges {
		charges[i].Quota = core.Quota{Limit: 100_000, Window: time.Hour.Microseconds()}
	}
	charges[0].Quota.Limit = s.limit
	return charges
}

// fill makes the logs of keys half full. The last unit comes by itself: it makes the
// string longer by a quarter, which is a copy that no decision after it needs soon.
func (r *redisCases) fill(ctx context.Context, store *redisstore.Store, s shape, names []string) error {
	if err := r.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	next := atomic.Int64{}
	errs := make([]error, 64)
	var done sync.WaitGroup
	for c := range errs {
		done.Go(func() {
			charge := hourly(s)[:1]
			for i := next.Add(1) - 1; i < int64(len(names)) && errs[c] == nil; i = next.Add(1) - 1 {
				charge[0].Key = names[i]
				for _, charge[0].Cost = range []int64{s.limit/2 - 1, 1} {
					if _, errs[c] = core.Take(ctx, store, charge); errs[c] != nil {
						return
					}
				}
			}
		})
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// time returns the time that the script takes for one decision, in µs. Its decisions go
// round the keys, which are many more than are asked for.
func (r *redisCases) time(ctx context.Context, s shape) (float64, error) {
	store := redisstore.New(r.client, &redisstore.Options{Timeout: patience})
	names := s.names()
	if err := r.fill(ctx, store, s, names); err != nil {
		return 0, err
	}
	if err := r.client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	charges := hourly(s)
	for i := range lone {
		charges[0].Key = names[i*(len(names)-1)/lone]
		if d, err := core.Take(ctx, store, charges); err != nil || !d.Allowed {
			return 0, fmt.Errorf("admitted %v: %w", d.Allowed, err)
		}
	}
	info, err := r.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0, fmt.Errorf("no evalsha in %q", info)
	}
	calls, _ := strconv.ParseFloat(found[1], 64)
	usec, _ := strconv.ParseFloat(found[2], 64)
	return usec / calls, nil
}

// bytes returns MEMORY USAGE of a key.
func (r *redisCases) bytes(ctx context.Context, s shape) (float64, error) {
	store := redisstore.New(r.client, &redisstore.Options{Timeout: patience})
	if err := r.fill(ctx, store, s, s.names()[:1]); err != nil {
		return 0, err
	}
	keys, err := r.client.Keys(ctx, "*rule-0*").Result()
	if err != nil || len(keys) != 1 {
		return 0, fmt.Errorf("keys %q: %w", keys, err)
	}
	n, err := r.client.MemoryUsage(ctx, keys[0]).Result()
	return float64(n), err
}

// processes returns how many decisions a second so many processes make.
func (r *redisCases) processes(ctx context.Context, n int64) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	if err := r.client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	outputs, errs := make([]bytes.Buffer, n), make([]error, n)
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			work := exec.CommandContext(ctx, self, "-worker", r.client.Options().Addr, "-time", (2 * r.lasts).String())
			work.Stdout, work.Stderr = &outputs[i], os.Stderr
			errs[i] = work.Run()
		})
	}
	done.Wait()
	sum := 0.0
	for i := range n {
		if errs[i] != nil {
			return 0, errs[i]
		}
		rate, err := strconv.ParseFloat(outputs[i].String(), 64)
		if err != nil {
			return 0, err
		}
		sum += rate
	}
	return sum, nil
}

// worker is one of the processes. It prints its decisions a second, after a warm-up as
// long as what it measures, in which the others start.
func worker(address string, lasts time.Duration) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	store := redisstore.New(client, &redisstore.Options{Timeout: patience})
	names := common.names()
	var decided atomic.Int64
	var failed atomic.Pointer[error]
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for c := range 64 {
		go func() {
			charges := hourly(common)
			charges[0].Quota.Limit = 1000 // more than a key gets, and small enough for batches
			for i := c * 7919; ctx.Err() == nil; i++ {
				charges[0].Key = names[i%len(names)]
				if _, err := core.Take(ctx, store, charges); err != nil && ctx.Err() == nil {
					failed.Store(&err)
					return
				}
				decided.Add(1)
			}
		}()
	}
	time.Sleep(lasts / 2)
	before, began := decided.Load(), time.Now()
	time.Sleep(lasts / 2)
	rate := float64(decided.Load()-before) / time.Since(began).Seconds()
	if err := failed.Load(); err != nil {
		return *err
	}
	fmt.Print(rate)
	return nil
}
