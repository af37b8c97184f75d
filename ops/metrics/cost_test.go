// Package metrics_test measures what promlimit and otellimit cost.
package metrics_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/metrics/otellimit"
	"github.com/routelimit/limit/ops/metrics/promlimit"
)

type observer = func(*http.Request, limit.Decision, error)

// exporters have a provider of OpenTelemetry that drops metrics, and that of the SDK.
var exporters = map[string]func(testing.TB) observer{
	"promlimit":      func(testing.TB) observer { return promlimit.Observe(prometheus.NewPedanticRegistry()) },
	"otellimit/noop": func(tb testing.TB) observer { return otel(tb, noop.NewMeterProvider()) },
	"otellimit/sdk": func(tb testing.TB) observer {
		return otel(tb, sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	},
}

func otel(tb testing.TB, provider metric.MeterProvider) observer {
	observe := must.Get(otellimit.Observe(provider))(tb)
	return observe
}

// benchmarks has rules that admit each request, and rules that refuse it.
var benchmarks = map[string][]limit.Rule{
	"1-rule":          {{Key: limit.Everyone, Limit: core.MaxLimit, Window: time.Hour, Algorithm: limit.FixedWindow{}}},
	"2-rules":         {{Key: limit.Everyone, Limit: core.MaxLimit, Window: time.Hour, Algorithm: limit.FixedWindow{}}, {Key: limit.ByIP, Limit: core.MaxLimit, Window: time.Minute, Algorithm: limit.FixedWindow{}}},
	"2-rules-refused": {{Key: limit.Everyone, Limit: core.MaxLimit, Window: time.Hour, Algorithm: limit.FixedWindow{}}, {Key: limit.ByIP, Limit: 1, Window: time.Hour, Algorithm: limit.FixedWindow{}}},
}

// BenchmarkObserve measures the function alone, in one goroutine and in several.
func BenchmarkObserve(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(benchmarks)) {
		policy := must.Get(limit.New(nil, nil).Policy(limit.Named("p", benchmarks[name]...)))(b)
		var d limit.Decision
		for range 2 {
			d = must.Get(policy.Take(b.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}}))(b)
		}
		for _, exporter := range slices.Sorted(maps.Keys(exporters)) {
			observe := exporters[exporter](b)
			b.Run(name+"/"+exporter, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					observe(nil, d, nil)
				}
			})
			b.Run(name+"/"+exporter+"/parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						observe(nil, d, nil)
					}
				})
			})
		}
	}
}

// TestAllocations checks that a decision costs no allocation, once its metrics exist.
func TestAllocations(t *testing.T) {
	for name, make := range exporters {
		observe := make(t)
		policy := must.Get(limit.New(nil, nil).Policy(limit.Named("p", limit.Global(time.Hour, 1), limit.Global(time.Minute, 1000))))(t)
		for range 2 {
			d := must.Get(policy.Take(t.Context(), limit.Request{}))(t)
			d.Latency = time.Millisecond
			assert.Zero(t, testing.AllocsPerRun(1000, func() { observe(nil, d, nil) }), name)
		}
	}
}
