//go:build unix

package livepage

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/topkeys"
)

// BenchmarkTake decides by two rules in memory: observed by nothing, by a function that does nothing, by
// topkeys, by the page, and by the page with a viewer.
// It measures all in turn and by processor time, which other programs on the machine hardly
// disturb, and reports the median of what each costs beyond a decision that nothing observes.
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
				report(b, names, turns(functions))
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

// turns returns the ns of processor time of a call of each function, in rounds of 10 ms.
func turns(functions []func()) [][]float64 {
	const rounds, slice = 21, 10 * time.Millisecond
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it does not fail for this process
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	ns := make([][]float64, len(functions))
	calls := make([]int, len(functions))
	for i, f := range functions {
		for began := used(); used()-began < slice; calls[i] += 100 {
			for range 100 {
				f()
			}
		}
	}
	for range rounds {
		for i, f := range functions {
			began := used()
			for range calls[i] {
				f()
			}
			ns[i] = append(ns[i], float64(used()-began)/float64(calls[i]))
		}
	}
	return ns
}

// report reports the median of what each function costs beyond the first.
func report(b *testing.B, names []string, ns [][]float64) {
	b.ReportMetric(0, "ns/op")
	for i, name := range names {
		more := make([]float64, len(ns[i]))
		for round := range more {
			more[round] = ns[i][round]
			if i > 0 {
				more[round] -= ns[0][round]
			}
		}
		slices.Sort(more)
		b.ReportMetric(more[len(more)/2], "ns-"+name)
	}
}
