package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
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

func (t contest) loggers(script *redis.Script) []logger {
	store := onRedis(t.client)
	taking := logger{
		name: "limit",
		key: func(name string) string {
			return lua.Key("limit", &core.Charge{Policy: "bench", Rule: "ip", Key: name})
		},
		fill: func(ctx context.Context, name string, limit int64) error {
			charge := twoRules{window: logWindow, each: limit}.charges()[:1]
			charge[0].Key = name
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
			_, err := t.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range limit {
					script.EvalSha(ctx, p, []string{key(name)}, "", 1, unique(i), 1, limit, logWindow.Microseconds())
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

// bytes shows how many bytes of Redis a logged request takes.
func (t contest) bytes(ctx context.Context) error {
	script, err := zsetScript()
	if err != nil {
		return err
	}
	if err := script.Load(ctx, t.client).Err(); err != nil {
		return err
	}
	writeHead(os.Stdout, "", "limit", "MEMORY USAGE of a full key", "for each request",
		"used_memory for each key", "for each request")
	for _, limit := range []int64{100, 1000, 10_000} {
		names := addresses(int(min(2_000, logUnits/limit)))
		for _, l := range t.loggers(script) {
			if err := t.client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			before, err := t.memory(ctx)
			if err != nil {
				return err
			}
			var group errgroup.Group
			group.SetLimit(64)
			for _, name := range names {
				group.Go(func() error { return l.fill(ctx, name, limit) })
			}
			if err := group.Wait(); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			after, err := t.memory(ctx)
			if err != nil {
				return err
			}
			one, err := t.client.MemoryUsage(ctx, l.key(names[0]), 0).Result()
			if err != nil {
				return err
			}
			all := (after - before) / float64(len(names))
			fmt.Printf("| %s | %d | %d | %.1f | %.0f | %.1f |\n", l.name, limit,
				one, float64(one)/float64(limit), all, all/float64(limit))
		}
	}
	return nil
}

// memory returns how many bytes the server has allocated. It first closes all other
// connections, since their buffers would count.
func (t contest) memory(ctx context.Context) (float64, error) {
	if err := t.client.ClientKillByFilter(ctx, "TYPE", "normal").Err(); err != nil {
		return 0, err
	}
	time.Sleep(100 * time.Millisecond)
	info := t.client.InfoMap(ctx, "memory")
	return number(info.Item("Memory", "used_memory")), info.Err()
}
