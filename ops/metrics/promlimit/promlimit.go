// Package promlimit exports metrics of package limit to Prometheus:
//
//	limiter := limit.New(store, &limit.Options{Observe: promlimit.Observe(prometheus.DefaultRegisterer)})
//	promlimit.Watch(prometheus.DefaultRegisterer, limiter)
//
// Observe counts decisions, with labels that only the program chooses and no client can:
//
//   - rate_limiting_requests_total by policy, result and mode. The result is what the
//     caller met: admitted, marked, degraded, redirected or refused. The mode says how
//     the decision was made: see [core.Mode].
//   - rate_limiting_rule_refusals_total by policy and rule: the rules that had no
//     room.
//   - rate_limiting_rule_marks_total and rate_limiting_shadow_refusals_total by policy
//     and rule: requests that a rule marked, and those that a shadow would have refused.
//   - rate_limiting_agreement_total by policy, rule, replaces and verdict (both_admit,
//     both_refuse, only_new_refuses, only_old_refuses): what a shadow and the rule that
//     it may replace said about each request. See operate.Comparisons.
//   - rate_limiting_errors_total by kind: undecided (answered with 503), unsettled
//     and lease_lost.
//   - rate_limiting_given_back_total by policy: admitted requests that gave back what
//     they took, since a rule set behind theirs refused them.
//   - rate_limiting_decision_duration_seconds by mode, a histogram: the time that the
//     store took for each decision.
//   - rate_limiting_rule_used_ratio by policy and rule, a histogram: the part of the
//     rule's capacity that the key of the request had used after the decision, from 0 to
//     1. It shows who is near a limit before any request is refused.
//   - rate_limiting_wait_duration_seconds by policy and result, a histogram: how long
//     requests waited for room, of those that waited.
//
// Watch exports what operate.ReadStats returns. rate_limiting_store_unavailable is 1 while
// requests are decided without the store, and rate_limiting_store_owed is above 0 until the
// store is charged for what was admitted meanwhile, about a second after it answers.
//
// Requests of clients that the program exempts or bars have the modes exempt and
// barred, and no rule. Rules with OnStoreError Refuse have the mode refused instead.
//
// The metrics are of what [limit.Options].Observe observes: each HTTP request that
// a handler, middleware or adapter decides, and [limit.Policy.Take] and
// Wait. They do not count Peek. Of Decide of an adapter they count only errors.
// Bodies that package throttle slows count only if they fail.
package promlimit

import (
	"errors"
	"net/http"

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
		switch m.Kind {
		case telemetry.Counter:
			to.counters[m] = register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Prom, Help: m.Help}, m.Labels))
		case telemetry.Histogram:
			if m == telemetry.Used {
				to.used = register(registerer, newRatios(m))
				continue
			}
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
