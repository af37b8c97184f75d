//go:build unix

package metrics_test

import (
	"maps"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
)

// BenchmarkTake decides in memory without metrics, with a function that does nothing, and with metrics.
// It measures all in turn and by processor time, which other programs on the machine hardly
// disturb, and reports the median of what each costs beyond a decision that nothing observes.
func BenchmarkTake(b *testing.B) {
	names := append([]string{"none", "empty"}, slices.Sorted(maps.Keys(exporters))...)
	for _, name := range slices.Sorted(maps.Keys(benchmarks)) {
		b.Run(name, func(b *testing.B) {
			var functions []func()
			for _, exporter := range names {
				options := &limit.Options{}
				switch make := exporters[exporter]; {
				case make != nil:
					options.Observe = make(b)
				case exporter == "empty":
					options.Observe = func(*http.Request, limit.Decision, error) {}
				}
				policy := must.Get(limit.New(nil, options).Policy(limit.Named("p", benchmarks[name]...)))(b)
				request := limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}}
				functions = append(functions, func() { _, _ = policy.Take(b.Context(), request) })
			}
			report(b, names, turns(functions))
		})
	}
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
