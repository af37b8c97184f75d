package metrics_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/turns"
)

// BenchmarkTake decides in memory without metrics, with a function that does nothing, and with metrics.
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
			turns.Report(b, names, functions)
		})
	}
}
