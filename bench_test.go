package limit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
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
