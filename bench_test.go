package limit_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// BenchmarkTake compares two rules decided by the memory store alone, by a policy,
// and by its handler. make bench runs it.
func BenchmarkTake(b *testing.B) {
	const limits = 100_000
	rules := []limit.Rule{limit.PerUser(time.Hour, limits), limit.Global(time.Millisecond, limits)}
	rules[0].Window = time.Millisecond
	b.Run("store", func(b *testing.B) {
		store := memstore.New(nil)
		quota := core.Quota{Limit: limits, Window: 1000}
		asks := []core.Ask{{Charges: []core.Charge{{Policy: "p", Rule: "per-user-1ms", Key: "alice", Quota: quota, Cost: 1},
			{Policy: "p", Rule: "global-1ms", Quota: quota, Cost: 1}}}}
		b.ReportAllocs()
		for b.Loop() {
			if err := store.Take(b.Context(), asks); err != nil || !asks[0].Decision.Allowed {
				b.Fatal(asks, err)
			}
		}
	})
	b.Run("policy", func(b *testing.B) {
		policy := mustPolicy(limit.New(nil, nil), limit.Named("p", rules...))
		request := limit.Request{Keys: map[string]string{"user": "alice"}}
		b.ReportAllocs()
		for b.Loop() {
			if d, err := policy.Take(b.Context(), request); err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}
	})
	plans := []limit.Rule{rules[0], rules[1]}
	plans[0].Plans = map[string]int64{"free": 1, "pro": limits}
	plans[1].Plans, plans[1].Limit = map[string]int64{"pro": limits}, 1
	callers := &limit.Options{Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "alice" }, Plan: func(*http.Request) string { return "pro" }}}
	b.Run("policy of plans", func(b *testing.B) {
		policy := mustPolicy(limit.New(nil, callers), limit.Named("p", plans...))
		request := limit.Request{Keys: map[string]string{"user": "alice"}, Plan: "pro"}
		b.ReportAllocs()
		for b.Loop() {
			if d, err := policy.Take(b.Context(), request); err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}
	})
	b.Run("handler", func(b *testing.B) { benchmarkHandler(b, callers, rules) })
	b.Run("handler of plans", func(b *testing.B) { benchmarkHandler(b, callers, plans) })
}

func benchmarkHandler(b *testing.B, options *limit.Options, rules []limit.Rule) {
	limiter := limit.New(nil, options)
	h := limiter.Limit(limit.Rules(rules...))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Pattern = "GET /"
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		clear(w.Header())
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}

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
