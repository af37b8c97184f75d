package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/metrics/otellimit"
	"github.com/routelimit/limit/stores/memstore"
)

// A store takes a millisecond for each decision, and fails while err is set.
type store struct {
	core.Store
	err error
}

func (s *store) Take(ctx context.Context, asks []core.Ask) error {
	time.Sleep(time.Millisecond)
	if s.err != nil {
		return s.err
	}
	return s.Store.Take(ctx, asks)
}

func meters() (*sdkmetric.MeterProvider, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), reader
}

// collect returns each value, or the count of each histogram, by its name and attributes.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	values := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(set attribute.Set, value int64) {
				values[m.Name+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				assert.True(t, data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, int64(p.Count))
				}
			default:
				require.Fail(t, fmt.Sprintf("%s is a %T", m.Name, data))
			}
		}
	}
	return values
}

// TestObserve counts decisions of every kind, whose paths must not become attributes.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, reader := meters()
		observe := must.Get(otellimit.Observe(provider))(t)
		inner := &store{Store: memstore.New(nil)}
		limiter := limit.New(inner, &limit.Options{Observe: observe, Log: slog.New(slog.DiscardHandler)})
		mux := http.NewServeMux()
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		mux.Handle("GET /items/{id}", limiter.Limit(limit.Rules(limit.MustParse("old: 3/1h global; new: 1/1h global shadow replaces old").Rules()...))(ok))
		for i := range 4 {
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", fmt.Sprint("/items/", i), nil))
		}
		policy := must.Get(limiter.Policy(limit.Named("p", limit.MustParse("r: 1/1m global").Rules()...)))(t)
		for range 2 {
			must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		}
		must.Get(policy.Wait(t.Context(), limit.Request{}))(t)
		inner.err = errors.New("an invalid reply")
		_, err := policy.Take(t.Context(), limit.Request{})
		if err == nil { // remembered
			time.Sleep(2 * time.Second)
			_, err = policy.Take(t.Context(), limit.Request{})
		}
		require.Error(t, err)
		observe(nil, limit.Decision{Allowed: true}, errors.Join(errors.New("the reason"), limit.ErrLeaseLost))

		values := collect(t, reader)
		for name, want := range map[string]int64{
			"rate_limiting.requests{mode=exact,policy=GET /items/{id},result=admitted}":                      3,
			"rate_limiting.requests{mode=remembered,policy=GET /items/{id},result=refused}":                  1,
			"rate_limiting.requests{mode=exact,policy=p,result=admitted}":                                    2,
			"rate_limiting.rule_refusals{policy=GET /items/{id},rule=old}":                                   1,
			"rate_limiting.shadow_refusals{policy=GET /items/{id},rule=new}":                                 3,
			"rate_limiting.agreement{policy=GET /items/{id},replaces=old,rule=new,verdict=both_admit}":       1,
			"rate_limiting.agreement{policy=GET /items/{id},replaces=old,rule=new,verdict=only_new_refuses}": 2,
			"rate_limiting.rule.used_ratio{policy=GET /items/{id},rule=old}":                                 4,
			"rate_limiting.decision.duration{mode=exact}":                                                    5,
			"rate_limiting.wait.duration{policy=p,result=admitted}":                                          1,
			"rate_limiting.errors{kind=undecided}":                                                           1,
			"rate_limiting.errors{kind=unsettled}":                                                           0,
			"rate_limiting.errors{kind=lease_lost}":                                                          1,
		} {
			got, exists := values[name]
			assert.True(t, exists, name)
			assert.Equal(t, want, got, name)
		}
		if t.Failed() {
			t.Log(values)
		}
	})
}

// ratios returns the histogram of how full a rule runs.
func ratios(t *testing.T, reader sdkmetric.Reader) (counts []uint64, sum float64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if data, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "rate_limiting.rule.used_ratio" {
				require.Len(t, data.DataPoints, 1)
				return data.DataPoints[0].BucketCounts, data.DataPoints[0].Sum
			}
		}
	}
	return nil, 0
}

// TestRatios has two readers: each gets every value once, in its bucket. A view that drops
// some counters does not drop the values.
func TestRatios(t *testing.T) {
	cumulative := sdkmetric.NewManualReader()
	delta := sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(func(sdkmetric.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(cumulative), sdkmetric.WithReader(delta),
		sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: "rate_limiting.re*"}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})))
	observe := must.Get(otellimit.Observe(provider))(t)
	policy := must.Get(limit.New(nil, &limit.Options{Observe: observe}).Policy(limit.Named("p", limit.Global(time.Hour, 10))))(t)
	take := func(times int) {
		for range times {
			must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		}
	}
	check := func(reader sdkmetric.Reader, want []uint64, wantSum float64) {
		t.Helper()
		counts, sum := ratios(t, reader)
		assert.Equal(t, want, counts)
		assert.InDelta(t, wantSum, sum, 1e-4)
	}
	take(3) // 0.1, 0.2, 0.3
	check(delta, []uint64{1, 1, 1, 0, 0, 0, 0, 0, 0}, 0.6)
	take(5) // to 0.8
	check(cumulative, []uint64{1, 1, 3, 2, 1, 0, 0, 0, 0}, 3.6)
	check(delta, []uint64{0, 0, 2, 2, 1, 0, 0, 0, 0}, 3)
	take(4) // 0.9, and 1 three times
	check(delta, []uint64{0, 0, 0, 0, 0, 1, 0, 0, 3}, 3.9)
	check(cumulative, []uint64{1, 1, 3, 2, 1, 1, 0, 0, 3}, 7.5)
	check(cumulative, []uint64{1, 1, 3, 2, 1, 1, 0, 0, 3}, 7.5)
}

// TestWatch adds up two limiters.
func TestWatch(t *testing.T) {
	provider, reader := meters()
	var limiters []*limit.Limiter
	for range 2 {
		limiter := limit.New(nil, nil)
		limiters = append(limiters, limiter)
		policy := must.Get(limiter.Policy(limit.Named("p", limit.Global(time.Hour, 100))))(t)
		for i := range 3 {
			d := must.Get(policy.Take(t.Context(), limit.Request{Settle: true}))(t)
			if i == 0 {
				require.NoError(t, d.Settle(t.Context(), 0))
			}
		}
	}
	require.NoError(t, otellimit.Watch(provider, limiters...))
	assert.Equal(t, map[string]int64{
		"rate_limiting.forgiven{}":          0,
		"rate_limiting.holds.ended{}":       0,
		"rate_limiting.holds.refused{}":     0,
		"rate_limiting.reservations{}":      6,
		"rate_limiting.settlements{}":       2,
		"rate_limiting.store.blocked{}":     0,
		"rate_limiting.store.outages{}":     0,
		"rate_limiting.store.owed{}":        0,
		"rate_limiting.store.paid{}":        0,
		"rate_limiting.store.unavailable{}": 0,
		"rate_limiting.waiters{}":           0,
	}, collect(t, reader))
}

// TestSpans describes a refusal in the span of its request, and no key.
func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	observe := must.Get(otellimit.Observe(noop.NewMeterProvider()))(t)
	limiter := limit.New(nil, &limit.Options{Observe: observe})
	policy := must.Get(limiter.Policy(limit.Named("p", limit.PerIP(time.Hour, 1))))(t)
	h := policy.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 2 {
		ctx, span := tracer.Start(t.Context(), "request")
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		span.End()
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) // without a span

	admitted := attribute.NewSet(spans.Ended()[0].Attributes()...)
	assert.Equal(t, "rate_limiting.mode=exact,rate_limiting.policy=p,rate_limiting.result=admitted", admitted.Encoded(attribute.DefaultEncoder()))
	refused := attribute.NewSet(spans.Ended()[1].Attributes()...)
	result, _ := refused.Value("rate_limiting.result")
	assert.Equal(t, "refused", result.AsString())
	refusing, _ := refused.Value("rate_limiting.refusing")
	assert.Equal(t, []string{"per-ip-1h"}, refusing.AsStringSlice())
	after, _ := refused.Value("rate_limiting.retry_after")
	assert.InDelta(t, 3600, after.AsFloat64(), 10)
	assert.NotContains(t, refused.Encoded(attribute.DefaultEncoder()), "192.0.2.1")

	reason := errors.New("the reason")
	assert.Equal(t, []attribute.KeyValue{attribute.String("rate_limiting.error", "undecided")}, otellimit.Attributes(limit.Decision{}, reason))
	assert.Contains(t, otellimit.Attributes(limit.Decision{Allowed: true}, reason), attribute.String("rate_limiting.error", "unsettled"))
	assert.Contains(t, otellimit.Attributes(limit.Decision{Allowed: true}, limit.ErrLeaseLost), attribute.String("rate_limiting.error", "lease_lost"))
}

// A refusing provider makes no histogram.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errors.New("no histograms")
}

func (refusingMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return nil, errors.New("no gauges")
}

// TestSpanOfLayers describes a request by the inner set that refuses it, and not by what the
// outer one gives back.
func TestSpanOfLayers(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	provider, reader := meters()
	observe := must.Get(otellimit.Observe(provider))(t)
	limiter := limit.New(nil, &limit.Options{Observe: observe})
	outer := must.Get(limiter.Policy(limit.Named("outer", limit.Global(time.Hour, 10))))(t)
	h := outer.Handler(limiter.Limit(limit.Named("inner", limit.Global(time.Hour, 1)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for range 2 {
		ctx, span := tracer.Start(t.Context(), "request")
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		span.End()
	}
	refused := attribute.NewSet(spans.Ended()[1].Attributes()...)
	for name, want := range map[attribute.Key]string{"policy": "inner", "result": "refused", "error": ""} {
		value, _ := refused.Value("rate_limiting." + name)
		assert.Equal(t, want, value.AsString(), name)
	}
	values := collect(t, reader)
	assert.EqualValues(t, 1, values["rate_limiting.given_back{policy=outer}"])
	assert.EqualValues(t, 2, values["rate_limiting.requests{mode=exact,policy=outer,result=admitted}"])
	assert.EqualValues(t, 0, values["rate_limiting.errors{kind=unsettled}"])
}

// TestErrors returns the errors of a provider.
func TestErrors(t *testing.T) {
	_, err := otellimit.Observe(refusing{})
	require.ErrorContains(t, err, "no histograms")
	require.ErrorContains(t, otellimit.Watch(refusing{}, limit.New(nil, nil)), "no gauges")
	assert.Panics(t, func() { _ = otellimit.Watch(noop.NewMeterProvider(), nil) })
}
