// Package otellimit exports metrics of package limit to OpenTelemetry, and describes
// decisions in spans. It needs the API of OpenTelemetry alone:
//
//	observe, err := otellimit.Observe(otel.GetMeterProvider())
//	…
//	limiter := limit.New(store, &limit.Options{Observe: observe})
//	err = otellimit.Watch(otel.GetMeterProvider(), limiter)
//
// The metrics are those of package promlimit: docs/metrics.md lists both names. The
// exporters of OpenTelemetry for Prometheus translate these names to those of promlimit.
// Policies and rules are words of the program, and the values of the other attributes
// are few: clients choose none.
package otellimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/telemetry"
)

// scope is the name of the instrumentation.
const scope = "github.com/routelimit/limit/ops/metrics/otellimit"

// Observe returns a function for [limit.Options].Observe. It adds each decision to the
// metrics of provider, and sets [Attributes] on the span of the request, if there is
// one that records. Several policies on one request overwrite each other's attributes.
//
// How full rules run is recorded when the provider collects, which takes about 60 ns for
// each rule of each decision since the last time. A provider that drops all counters
// drops it too.
//
// Call Observe once for a provider, and share the function between limiters: of two
// functions, the provider may report the counts of one alone. The error is that of the
// provider.
func Observe(provider metric.MeterProvider) (func(*http.Request, limit.Decision, error), error) {
	to := &exporter{counters: make(map[*telemetry.Metric]metric.Int64ObservableCounter), histograms: make(map[*telemetry.Metric]metric.Float64Histogram)}
	var counting []metric.Observable
	meter := provider.Meter(scope)
	var errs []error
	for _, m := range telemetry.OfDecisions {
		var err error
		if m.Kind == telemetry.Counter {
			to.counters[m], err = meter.Int64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
			counting = append(counting, to.counters[m])
		} else {
			to.histograms[m], err = meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help),
				metric.WithExplicitBucketBoundaries(m.Bounds...))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if _, err := meter.RegisterCallback(to.report, counting...); err != nil {
		return nil, err
	}
	observer := telemetry.NewObserver(to)
	return func(r *http.Request, d limit.Decision, err error) {
		observer.Observe(&d, err)
		if r != nil {
			if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
				describe(span, d, err)
			}
		}
	}, nil
}

// describe is a function of its own, so that decisions without a span do not escape.
func describe(span trace.Span, d limit.Decision, err error) {
	span.SetAttributes(Attributes(d, err)...)
}

// An exporter has the metrics of decisions. Its maps do not change.
type exporter struct {
	counters   map[*telemetry.Metric]metric.Int64ObservableCounter
	histograms map[*telemetry.Metric]metric.Float64Histogram

	counts sync.Map // of *counter by counterID
	mu     sync.Mutex
	used   []ratio // only grows
}

// A counter is reported when the provider asks, since a synchronous instrument looks its
// attributes up at each call.
type counter struct {
	of    *telemetry.Metric
	set   attribute.Set
	count atomic.Int64
}

type counterID struct {
	of  *telemetry.Metric
	set attribute.Distinct
}

func (c *counter) Inc() { c.count.Add(1) }

// A ratio collects the values that a rule has in each decision: recording one takes longer than
// all other metrics of a decision.
type ratio struct {
	*telemetry.Buckets
	to *histogram
}

func (e *exporter) Counter(m *telemetry.Metric, values ...string) telemetry.Counting {
	set := attributes(m, values)
	known, _ := e.counts.LoadOrStore(counterID{m, set.Equivalent()}, &counter{of: m, set: set})
	return known.(*counter)
}

func (e *exporter) Histogram(m *telemetry.Metric, values ...string) telemetry.Measuring {
	return e.histogram(m, values)
}

func (e *exporter) Buckets(m *telemetry.Metric, values ...string) *telemetry.Buckets {
	r := ratio{telemetry.NewBuckets(m), e.histogram(m, values)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used = append(e.used, r)
	return r.Buckets
}

func (e *exporter) histogram(m *telemetry.Metric, values []string) *histogram {
	return &histogram{of: e.histograms[m], options: []metric.RecordOption{metric.WithAttributeSet(attributes(m, values))}}
}

// report reports the counts, and records what rules have collected, until ctx ends.
func (e *exporter) report(ctx context.Context, to metric.Observer) error {
	for _, known := range e.counts.Range {
		c := known.(*counter)
		to.ObserveInt64(e.counters[c.of], c.count.Load(), metric.WithAttributeSet(c.set))
	}
	e.mu.Lock()
	used := e.used
	e.mu.Unlock()
	for _, r := range used {
		r.Drain(r.to.Observe, func() bool { return ctx.Err() == nil })
	}
	return nil
}

func attributes(m *telemetry.Metric, values []string) attribute.Set {
	list := make([]attribute.KeyValue, len(values))
	for i, value := range values {
		list[i] = attribute.String(m.Labels[i], value)
	}
	return attribute.NewSet(list...)
}

// A histogram has the attributes of its values.
type histogram struct {
	of      metric.Float64Histogram
	options []metric.RecordOption
}

func (h *histogram) Observe(value float64) { h.of.Record(context.Background(), value, h.options...) }

// Watch exports what operate.ReadStats returns when the provider asks, for all the
// limiters together. Call Watch once for a provider. The error is that of the provider.
func Watch(provider metric.MeterProvider, limiters ...*limit.Limiter) error {
	all := new(telemetry.Limiters)
	for _, limiter := range limiters {
		all.Add(limiter)
	}
	meter := provider.Meter(scope)
	instruments := make([]metric.Observable, len(telemetry.OfLimiters))
	var errs []error
	for i, m := range telemetry.OfLimiters {
		var err error
		if m.Kind == telemetry.Counter {
			instruments[i], err = meter.Int64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		} else {
			instruments[i], err = meter.Int64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for i, value := range all.Values() {
			to.ObserveInt64(instruments[i].(metric.Int64Observable), value)
		}
		return nil
	}, instruments...)
	return err
}

// Attributes describes a decision in a span: the policy, result and mode of the metrics,
// and, if a rule refused it, the rules and the seconds until the request would be
// admitted. They have no keys. The prefix is "rate_limiting.". There are none for a decision
// that is GivenBack, since the refusal of the inner set describes the request. Observe sets
// them for HTTP requests; after [limit.Policy.Take] or Wait, set them where the span is:
//
//	d, err := policy.Take(ctx, request)
//	trace.SpanFromContext(ctx).SetAttributes(otellimit.Attributes(d, err)...)
func Attributes(d limit.Decision, err error) []attribute.KeyValue {
	if d.GivenBack {
		return nil
	}
	if err != nil && !d.Allowed {
		return []attribute.KeyValue{attribute.String("rate_limiting.error", telemetry.Undecided)}
	}
	list := []attribute.KeyValue{
		attribute.String("rate_limiting.policy", d.Policy),
		attribute.String("rate_limiting.result", d.Outcome()),
		attribute.String("rate_limiting.mode", d.Mode.String()),
	}
	var refusing []string
	for rule := range d.Rules() {
		if rule.Refused {
			refusing = append(refusing, rule.Name)
		}
	}
	if refusing != nil {
		list = append(list, attribute.StringSlice("rate_limiting.refusing", refusing))
	}
	if d.RetryAfter > 0 && d.RetryAfter != limit.Never {
		list = append(list, attribute.Float64("rate_limiting.retry_after", d.RetryAfter.Seconds()))
	}
	if d.Waited > 0 {
		list = append(list, attribute.Float64("rate_limiting.waited", d.Waited.Seconds()))
	}
	switch {
	case errors.Is(err, limit.ErrLeaseLost):
		list = append(list, attribute.String("rate_limiting.error", telemetry.LeaseLost))
	case err != nil:
		list = append(list, attribute.String("rate_limiting.error", telemetry.Unsettled))
	}
	return list
}
