package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// bytes shows how many bytes of Redis a key takes whose log is full, and each request in it.
func (t contest) bytes(ctx context.Context) error {
	script, err := zsetScript()
	if err != nil {
		return err
	}
	const window, address = time.Hour, "198.51.0.0"
	store := onRedis(t.client)
	zset := "limit:1:{bench}:ip:" + address // as long as a key of limit
	adding := func(unique func(i int64) string) func(i, limit int64) error {
		return func(i, limit int64) error {
			return script.Run(ctx, t.client, []string{zset}, "", 1, unique(i), 1, limit, window.Microseconds()).Err()
		}
	}
	taking := func(_, limit int64) error {
		charge := twoRules{window: window, each: limit}.charges()[:1]
		charge[0].Key = address
		_, err := core.Take(ctx, store, charge)
		return err
	}
	writeHead(os.Stdout, "", "limit", "MEMORY USAGE of a full key", "for each request")
	for _, limit := range []int64{100, 1000, 10_000} {
		for _, log := range []struct {
			name, key string
			add       func(i, limit int64) error // the i-th request
		}{
			{"limit", lua.Key("limit", &core.Charge{Policy: "bench", Rule: "ip", Key: address}), taking},
			{"ZSET, members of 36 characters (a UUID)", zset, adding(func(int64) string { return member() })},
			{"ZSET, members of 8 characters", zset, adding(func(i int64) string { return fmt.Sprintf("%08d", i) })},
		} {
			if err := t.client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			for i := range limit {
				if err := log.add(i, limit); err != nil {
					return fmt.Errorf("%s: %w", log.name, err)
				}
			}
			n, err := t.client.MemoryUsage(ctx, log.key, 0).Result()
			if err != nil {
				return err
			}
			fmt.Printf("| %s | %d | %d | %.1f |\n", log.name, limit, n, float64(n)/float64(limit))
		}
	}
	return nil
}
