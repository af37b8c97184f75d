package livepage

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// decisions returns n decisions with two rules, one for each of n keys, on p policies.
func decisions(t testing.TB, p, n int, allowed bool) (list []limit.Decision) {
	t.Helper()
	limits := &limit.Options{Log: slog.New(slog.DiscardHandler), MaxKeys: 2 * n}
	limiter := limit.New(nil, limits)
	limiter.Observe(func(_ *http.Request, d limit.Decision, _ error) { list = append(list, d) })
	for i := range p {
		policy, err := limiter.Policy(limit.Named(fmt.Sprintf("policy-%d", i), limit.PerUser(time.Hour, 1), limit.Rule{Key: limit.Everyone, Limit: 1_000_000, Window: time.Hour, Algorithm: limit.SlidingCells}))
		require.NoError(t, err)
		for j := i; j < n; j += p {
			for range 2 {
				_, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": fmt.Sprintf("user-%d", j)}})
				require.NoError(t, err)
			}
		}
	}
	kept := list[:0]
	for _, d := range list {
		if d.Allowed == allowed {
			kept = append(kept, d)
		}
	}
	return kept
}

// BenchmarkObserve measures what the page costs a decision with two rules.
func BenchmarkObserve(b *testing.B) {
	r := httptest.NewRequest("POST", "/login", nil)
	for _, size := range []struct{ policies, keys int }{{1, 1}, {1000, 100_000}} {
		for _, allowed := range []bool{true, false} {
			list := decisions(b, size.policies, size.keys, allowed)
			b.Run(fmt.Sprintf("policies=%d/keys=%d/allowed=%t", size.policies, size.keys, allowed), func(b *testing.B) {
				c := newCollector()
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
