// Package promlimit exports metrics of package limit to Prometheus:
//
//	limiter := limit.New(store, &limit.Options{Observe: promlimit.Observe(prometheus.DefaultRegisterer)})
//	promlimit.Watch(prometheus.DefaultRegisterer, limiter)
//
// docs/metrics.md lists the metrics of both functions, and what their labels mean. No client
// chooses a label.
//
// The metrics are of what [limit.Options].Observe observes: each HTTP request that
// a handler, middleware or adapter decides, and [limit.Policy.Take] and
// Wait. They do not count Peek. Of Decide of an adapter they count only errors.
// Bodies that package throttle slows count only if they fail.
package promlimit

import (
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/telemetry"
)

// Observe returns a function for [limit.Options].Observe. Limiters that share a
// registerer share the metrics. Observe panics if a metric cannot be registered,
// as [prometheus.MustRegister] does.
func Observe(registerer prometheus.Registerer) func(*http.Request, limit.Decision, error) {
	to := &exporter{counters: make(map[*telemetry.Metric]*prometheus.CounterVec), histograms: make(map[*telemetry.Metric]*prometheus.HistogramVec)}
	for _, m := range telemetry.OfDecisions {
		switch {
		case m.Kind == telemetry.Counter:
			to.counters[m] = register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Prom, Help: m.Help}, m.Labels))
		case m == telemetry.Used:
			to.used = register(registerer, &ratios{metric: m, desc: prometheus.NewDesc(m.Prom, m.Help, m.Labels, nil)})
		default:
			to.histograms[m] = register(registerer, prometheus.NewHistogramVec(
				prometheus.HistogramOpts{Name: m.Prom, Help: m.Help, Buckets: m.Bounds}, m.Labels))
		}
	}
	observer := telemetry.NewObserver(to)
	return func(_ *http.Request, d limit.Decision, err error) { observer.Observe(&d, err) }
}

// An exporter has the metrics of decisions. Its maps do not change.
type exporter struct {
	counters   map[*telemetry.Metric]*prometheus.CounterVec
	histograms map[*telemetry.Metric]*prometheus.HistogramVec
	used       *ratios
}

func (e *exporter) Counter(m *telemetry.Metric, values ...string) telemetry.Counting {
	return e.counters[m].WithLabelValues(values...)
}

func (e *exporter) Histogram(m *telemetry.Metric, values ...string) telemetry.Measuring {
	return e.histograms[m].WithLabelValues(values...)
}

func (e *exporter) Buckets(_ *telemetry.Metric, values ...string) *telemetry.Buckets {
	return e.used.with([2]string(values))
}

// Watch exports what operate.ReadStats returns when Prometheus asks. The metrics of
// limiters that share a registerer are added up; a limiter counts once. Watch panics if
// a metric cannot be registered, as [prometheus.MustRegister] does.
func Watch(registerer prometheus.Registerer, limiter *limit.Limiter) {
	c := &collector{}
	for _, m := range telemetry.OfLimiters {
		c.descs = append(c.descs, prometheus.NewDesc(m.Prom, m.Help, m.Labels, nil))
	}
	register(registerer, c).limiters.Add(limiter)
}

// A collector collects the metrics of limiters.
type collector struct {
	descs    []*prometheus.Desc // of telemetry.OfLimiters
	limiters telemetry.Limiters
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	for i, value := range c.limiters.Values() {
		kind := prometheus.GaugeValue
		if telemetry.OfLimiters[i].Kind == telemetry.Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(c.descs[i], kind, float64(value))
	}
}

// register returns a new collector, or the one that is registered already.
func register[C prometheus.Collector](registerer prometheus.Registerer, c C) C {
	err := registerer.Register(c)
	var registered prometheus.AlreadyRegisteredError
	switch {
	case errors.As(err, &registered):
		return registered.ExistingCollector.(C)
	case err != nil:
		panic(err)
	}
	return c
}

// Ratios are the histograms of a metric with two labels. A [prometheus.HistogramVec]
// takes longer for each value.
type ratios struct {
	metric *telemetry.Metric
	desc   *prometheus.Desc
	of     sync.Map // of *telemetry.Buckets by [2]string, the values of the labels
}

func (r *ratios) with(values [2]string) *telemetry.Buckets {
	buckets, _ := r.of.LoadOrStore(values, telemetry.NewBuckets(r.metric))
	return buckets.(*telemetry.Buckets)
}

func (r *ratios) Describe(to chan<- *prometheus.Desc) { to <- r.desc }

func (r *ratios) Collect(to chan<- prometheus.Metric) {
	for key, buckets := range r.of.Range {
		count, sum, upTo := buckets.(*telemetry.Buckets).Snapshot()
		values := key.([2]string)
		to <- prometheus.MustNewConstHistogram(r.desc, count, sum, upTo, values[:]...)
	}
}
