package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/redisstore"
)

const (
	logUnits  = 2_000_000 // in all keys together
	logWindow = time.Hour
)

// A logger fills the log of a key up to its limit, one request at a time.
type logger struct {
	name string
	key  func(name string) string
	fill func(ctx context.Context, name string, limit int64) error
}

func loggers(client *redis.Client, zset *redis.Script) []logger {
	store := redisstore.New(client, &redisstore.Options{Timeout: redisserver.Patience})
	taking := logger{
		name: "limit",
		key: func(name string) string {
			return lua.Key("limit", &core.Charge{Policy: "bench", Rule: "ip", Key: name})
		},
		fill: func(ctx context.Context, name string, limit int64) error {
			charge := []core.Charge{{Policy: "bench", Rule: "ip", Key: name, Cost: 1, Quota: core.Quota{Limit: limit, Window: logWindow.Microseconds()}}}
			for range limit {
				if d, err := core.Take(ctx, store, charge); err != nil || !d.Allowed {
					return fmt.Errorf("admitted %v: %w", d.Allowed, err)
				}
			}
			return nil
		},
	}
	key := func(name string) string { return "limit:1:{bench}:ip:" + name } // as long as keys of limit
	adding := func(name string, unique func(i int64) string) logger {
		return logger{name: name, key: key, fill: func(ctx context.Context, name string, limit int64) error {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range limit {
					zset.EvalSha(ctx, p, []string{key(name)}, "", 1, unique(i), 1, limit, logWindow.Microseconds())
				}
				return nil
			})
			return err
		}}
	}
	return []logger{
		taking,
		adding("ZSET, members of 36 characters (a UUID)", func(int64) string { return member() }),
		adding("ZSET, members of 8 characters", func(i int64) string { return fmt.Sprintf("%08d", i) }),
	}
}

// writeBytes writes how many bytes of Redis a logged request takes.
func writeBytes(ctx context.Context, w io.Writer, s *redisserver.Server, zset *redis.Script) error {
	fmt.Fprintln(w, "\n| | limit | MEMORY USAGE of a full key | for each request | used_memory for each key | for each request |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	if err := zset.Load(ctx, s.Client).Err(); err != nil {
		return err
	}
	for _, limit := range []int64{100, 1000, 10_000} {
		for _, l := range loggers(s.Client, zset) {
			if err := s.Client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			before, err := memory(ctx, s)
			if err != nil {
				return err
			}
			if err := l.fillAll(ctx, limit); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			after, err := memory(ctx, s)
			if err != nil {
				return err
			}
			one, err := s.Client.MemoryUsage(ctx, l.key(logName(0)), 0).Result()
			if err != nil {
				return err
			}
			all := (after - before) / float64(keysOf(limit))
			fmt.Fprintf(w, "| %s | %d | %d | %.1f | %.0f | %.1f |\n", l.name, limit,
				one, float64(one)/float64(limit), all, all/float64(limit))
		}
	}
	return s.Client.FlushAll(ctx).Err()
}

// memory returns how many bytes the server has allocated. It first closes all other
// connections, since their buffers would count.
func memory(ctx context.Context, s *redisserver.Server) (float64, error) {
	if err := s.Client.ClientKillByFilter(ctx, "TYPE", "normal").Err(); err != nil {
		return 0, err
	}
	time.Sleep(100 * time.Millisecond)
	return s.Number(ctx, "memory", "used_memory")
}

// keysOf returns how many keys have a log.
func keysOf(limit int64) int { return int(min(2_000, logUnits/limit)) }

func logName(i int) string { return "198.51." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250) }

// fillAll fills all keys from 64 goroutines.
func (l logger) fillAll(ctx context.Context, limit int64) error {
	const callers = 64
	var done sync.WaitGroup
	problems := make(chan error, callers)
	for g := range callers {
		done.Go(func() {
			for i := g; i < keysOf(limit); i += callers {
				if err := l.fill(ctx, logName(i), limit); err != nil {
					problems <- err
					return
				}
			}
		})
	}
	done.Wait()
	close(problems)
	return <-problems
}
