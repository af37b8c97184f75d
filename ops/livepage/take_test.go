package livepage

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/turns"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/topkeys"
)

// BenchmarkTake decides by two rules in memory: observed by nothing, by a function that does nothing, by
// topkeys, by the page, and by the page with a viewer.
func BenchmarkTake(b *testing.B) {
	names := []string{"none", "empty", "topkeys", "page", "viewer"}
	for _, size := range []int{1, 1000} {
		for verdict, most := range map[string]int64{"admitted": core.MaxLimit, "refused": 1} {
			b.Run(fmt.Sprintf("keys=%d/%s", size, verdict), func(b *testing.B) {
				var functions []func()
				for _, name := range names {
					limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
					switch name {
					case "empty":
						operate.Observe(limiter, func(*http.Request, limit.Decision, error) {})
					case "topkeys":
						top := topkeys.New(nil)
						operate.Observe(limiter, func(_ *http.Request, d limit.Decision, _ error) { top.Observe(&d) })
					case "page":
						Handler(limiter, nil)
					case "viewer":
						watch(b, Handler(limiter, nil).(*page))
					}
					policy := must.Get(limiter.Policy(limit.Named("p",
						limit.Rule{Key: limit.ByUser, Limit: most, Window: time.Hour, Algorithm: limit.FixedWindow{}},
						limit.Rule{Key: limit.Everyone, Limit: core.MaxLimit, Window: time.Hour, Algorithm: limit.FixedWindow{}})))(b)
					requests, i := make([]limit.Request, size), 0
					for j := range requests {
						requests[j].Keys = map[string]string{"user": fmt.Sprintf("user-%d", j)}
					}
					functions = append(functions, func() {
						_, _ = policy.Take(b.Context(), requests[i%size])
						i++
					})
				}
				turns.Report(b, names, functions)
			})
		}
	}
}

// watch views the page each second until the benchmark ends, as events does without a connection.
func watch(b *testing.B, p *page) {
	go func() {
		for {
			p.view(query{limit: usualRows, sort: "refused", order: "use"})
			select {
			case <-b.Context().Done():
				return
			case <-time.After(p.collector.untilNext()):
			}
		}
	}()
}
