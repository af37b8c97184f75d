// Package promlimit counts the decisions of package limit for Prometheus:
//
//	limiter := limit.New(store, &limit.Options{Observe: promlimit.Observe(prometheus.DefaultRegisterer)})
//
// The counters, all of whose labels are the program's words, and never a client's:
//
//   - rate_limiting_requests_total by policy, result (admitted, refused) and mode:
//     how the decision was made, as [limit.Mode] says. Whatever is neither exact nor
//     remembered was decided without the store, or for keys together.
//   - rate_limiting_rule_refusals_total by policy and rule: which rules had no room.
//   - rate_limiting_errors_total by kind: undecided (answered with 503),
//     lease_lost and unsettled.
//
// So this is above 0 while something is not as it should be:
//
//	sum by (mode) (rate(rate_limiting_requests_total{mode!~"exact|remembered"}[5m]))
//
// Calls outside HTTP, such as limit.Limiter.Take, are not observed.
package promlimit

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routelimit/limit"
)

// Observe returns a function for [limit.Options].Observe. The limiters whose
// functions have one registerer share the counters. It panics, as
// [prometheus.MustRegister] does, if a counter cannot be registered.
func Observe(registerer prometheus.Registerer) func(*http.Request, limit.Decision, error) {
	requests := register(registerer, "rate_limiting_requests_total",
		"Requests that were admitted or refused, and how that was decided.", "policy", "result", "mode")
	refusals := register(registerer, "rate_limiting_rule_refusals_total",
		"Refusals by the rule that had no room.", "policy", "rule")
	problems := register(registerer, "rate_limiting_errors_total",
		"Requests that could not be decided or settled, or have lost what they held.", "kind")
	for _, kind := range []string{undecided, unsettled, leaseLost} {
		problems.WithLabelValues(kind) // 0 is not the same as unknown
	}
	return func(_ *http.Request, d limit.Decision, err error) {
		switch {
		case errors.Is(err, limit.ErrLeaseLost):
			problems.WithLabelValues(leaseLost).Inc()
		case err != nil && d.Allowed:
			problems.WithLabelValues(unsettled).Inc()
		case err != nil:
			problems.WithLabelValues(undecided).Inc()
		case d.Allowed:
			requests.WithLabelValues(d.Policy(), "admitted", d.Mode.String()).Inc()
		default:
			requests.WithLabelValues(d.Policy(), "refused", d.Mode.String()).Inc()
			for _, rule := range d.Refusing() {
				refusals.WithLabelValues(d.Policy(), rule).Inc()
			}
		}
	}
}

// Kinds of errors.
const (
	undecided = "undecided"
	unsettled = "unsettled"
	leaseLost = "lease_lost"
)

// register returns a new counter, or the one that is there already.
func register(registerer prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	err := registerer.Register(counter)
	var there prometheus.AlreadyRegisteredError
	switch {
	case errors.As(err, &there):
		return there.ExistingCollector.(*prometheus.CounterVec)
	case err != nil:
		panic(err)
	}
	return counter
}
