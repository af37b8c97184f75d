package livepage

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
)

// decisions returns n decisions with two rules, one for each of n keys, on p policies.
func decisions(t testing.TB, p, n int, allowed bool) (list []limit.Decision) {
	t.Helper()
	limits := &limit.Options{Log: slog.New(slog.DiscardHandler), MaxKeys: 20*n + 1000}
	limiter := limit.New(nil, limits)
	operate.Observe(limiter, func(_ *http.Request, d limit.Decision, _ error) { list = append(list, d) })
	for i := range p {
		policy := must.Get(limiter.Policy(limit.Named(fmt.Sprintf("policy-%d", i), limit.PerUser(time.Hour, 1), limit.Rule{Key: limit.Everyone, Limit: 1_000_000, Window: time.Hour, Algorithm: limit.SlidingCells{}})))(t)
		for j := i; j < n; j += p {
			for range 2 {
				must.Get(policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": fmt.Sprintf("user-%d", j)}}))(t)
			}
		}
	}
	kept := list[:0]
	for _, d := range list {
		if d.Allowed == allowed {
			kept = append(kept, d)
		}
	}
	require.Len(t, kept, n)
	return kept
}

// BenchmarkObserve measures what the page costs a decision with two rules.
func BenchmarkObserve(b *testing.B) {
	r := httptest.NewRequest("POST", "/login", nil)
	for _, size := range []struct{ policies, keys int }{{1, 1}, {1000, 100_000}} {
		for _, allowed := range []bool{true, false} {
			list := decisions(b, size.policies, size.keys, allowed)
			b.Run(fmt.Sprintf("policies=%d/keys=%d/allowed=%t", size.policies, size.keys, allowed), func(b *testing.B) {
				c := newCollector(nil)
				for i := range list {
					c.observe(r, list[i], nil)
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						c.observe(r, list[i%len(list)], nil)
					}
				})
			})
		}
	}
}

// BenchmarkParallel measures decisions in memory with two rules, in parallel: observed by nothing, by a
// function that does nothing, by the page, and with 10 viewers that each look at something
// else.
func BenchmarkParallel(b *testing.B) {
	for _, size := range []struct{ policies, keys int }{{1, 1}, {1000, 100_000}} {
		keys := make([]map[string]string, size.keys)
		for i := range keys {
			keys[i] = map[string]string{"user": fmt.Sprintf("user-%d", i)}
		}
		for viewers, name := range map[int]string{-2: "none", -1: "empty", 0: "page", 10: "viewers"} {
			b.Run(fmt.Sprintf("policies=%d/keys=%d/%s", size.policies, size.keys, name), func(b *testing.B) {
				limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler), MaxKeys: 1 << 21})
				policies := make([]*limit.Policy, size.policies)
				for i := range policies {
					policies[i] = bind(b, limiter, limit.Named(fmt.Sprintf("policy-%d", i),
						limit.Rule{Key: limit.ByUser, Limit: 10_000, Window: time.Hour, Algorithm: limit.LeakyBucket{Burst: 100_000_000}},
						limit.Rule{Key: limit.Everyone, Limit: 10_000, Window: time.Hour, Algorithm: limit.LeakyBucket{Burst: 100_000_000}}))
				}
				if viewers == -1 {
					operate.Observe(limiter, func(*http.Request, limit.Decision, error) {})
				}
				for i, keys := range keys { // so that the store has them
					if _, err := policies[i%size.policies].Take(context.Background(), limit.Request{Keys: keys}); err != nil {
						b.Fatal(err)
					}
				}
				if viewers >= 0 {
					p := Handler(limiter, nil).(*page)
					stop := make(chan struct{})
					defer close(stop)
					for i := range viewers {
						go func() { // what events does, without a connection
							for {
								p.view(query{limit: usualRows, sort: "refused", order: "use", offset: i})
								select {
								case <-stop:
									return
								case <-time.After(p.collector.untilNext()):
								}
							}
						}()
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.IntN(size.keys); pb.Next(); i = (i + 7919) % size.keys {
						if _, err := policies[i%size.policies].Take(context.Background(), limit.Request{Keys: keys[i]}); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkView measures a state of 1,000 policies, 1,000 of whose rules have 100 keys
// each: the part that all viewers share, and a view of it.
func BenchmarkView(b *testing.B) {
	limiter, p := pageOf(nil, nil)
	for i := range 1000 {
		policy := bind(b, limiter, limit.Named(fmt.Sprintf("policy-%d", i), limit.PerUser(time.Hour, 1), limit.Global(time.Hour, 100_000)))
		for j := range 150 {
			take(b, policy, fmt.Sprintf("203.0.113.%d", j%100))
		}
	}
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("shared=%t", shared), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if !shared {
					p.states.outdated()
				}
				p.view(query{limit: usualRows, sort: "refused", order: "use", offset: i % 50})
			}
		})
	}
}
