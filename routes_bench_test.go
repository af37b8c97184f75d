package limit_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// BenchmarkManyRoutes has 600 callers decide on many routes over a pool of 20
// connections, and reports how many percent of the decisions Redis did not make.
func BenchmarkManyRoutes(b *testing.B) {
	server := redistest.Launch(b)
	for _, routes := range []int{10, 300, 1000} {
		b.Run(fmt.Sprint(routes), func(b *testing.B) {
			client := redistest.Closing(b, redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 20}))
			limiter := limit.New(redisstore.New(client, nil), &limit.Options{Log: slog.New(slog.DiscardHandler)})
			policies := make([]*limit.Policy, routes)
			for i := range policies {
				var err error
				if policies[i], err = limiter.Policy(limit.Named(fmt.Sprintf("n%d-%d", b.N, i), limit.Global(time.Minute, 100_000))); err != nil {
					b.Fatal(err)
				}
			}
			var taken, local atomic.Int64
			var done sync.WaitGroup
			b.ResetTimer()
			for caller := range 600 {
				done.Go(func() {
					for i := caller; taken.Add(1) <= int64(b.N); i += 7 {
						d, err := policies[i%routes].Take(b.Context(), limit.Request{})
						if err != nil || d.Mode != core.ModeExact {
							local.Add(1)
						}
					}
				})
			}
			done.Wait()
			b.ReportMetric(100*float64(local.Load())/float64(b.N), "%local")
		})
	}
}
