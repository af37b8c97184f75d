// Package promlimit counts the decisions of package limit for Prometheus:
//
//	limiter := limit.New(store, &limit.Options{Observe: promlimit.Observe(prometheus.DefaultRegisterer)})
//
// Its counters, with labels that only the program chooses and no client can:
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
//     it may replace said about each request. See package agreement.
//   - rate_limiting_errors_total by kind: undecided (answered with 503), unsettled
//     and lease_lost.
//
// This expression is above 0 while requests are admitted without the store:
//
//	sum by (mode) (rate(rate_limiting_requests_total{result="admitted",mode=~"local|allowed"}[5m]))
//
// Requests of clients that the program exempts or bars have the modes exempt and
// barred, and no rule. Rules with OnStoreError Refuse have the mode refused instead. After an outage,
// for up to a window, refusals may have the mode local while the store works: it
// may not know what was admitted without it.
//
// The counters count what [limit.Options].Observe observes: each HTTP request that
// a handler, middleware or adapter decides, and [limit.Policy.Take], Wait and
// Reserve. They do not count Peek. Of [limit.Adapter.Decide] they count only errors.
// Bodies that package throttle slows count only if they fail.
package promlimit

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routelimit/limit"
)

// Observe returns a function for [limit.Options].Observe. Limiters that share a
// registerer share the counters. Observe panics if a counter cannot be registered,
// as [prometheus.MustRegister] does.
func Observe(registerer prometheus.Registerer) func(*http.Request, limit.Decision, error) {
	requests := register(registerer, "rate_limiting_requests_total",
		"Requests by what they met, and how that was decided.", "policy", "result", "mode")
	refusals := register(registerer, "rate_limiting_rule_refusals_total",
		"Refusals by the rule that had no room.", "policy", "rule")
	marks := register(registerer, "rate_limiting_rule_marks_total",
		"Requests that a rule marked because it had no room.", "policy", "rule")
	shadows := register(registerer, "rate_limiting_shadow_refusals_total",
		"Requests that a shadow rule would have refused.", "policy", "rule")
	agreements := register(registerer, "rate_limiting_agreement_total",
		"Verdicts of a shadow rule and of the rule that it may replace.", "policy", "rule", "replaces", "verdict")
	problems := register(registerer, "rate_limiting_errors_total",
		"Requests that could not be decided or settled, or that lost a lease.", "kind")
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
		default:
			policy := d.Policy()
			requests.WithLabelValues(policy, d.Outcome(), d.Mode.String()).Inc()
			count(refusals, policy, d.Refusing())
			count(marks, policy, d.Marked())
			count(shadows, policy, d.Shadowed())
			for _, pair := range d.Comparisons() {
				agreements.WithLabelValues(policy, pair.New.Name, pair.Old.Name, verdict(pair)).Inc()
			}
		}
	}
}

func count(counter *prometheus.CounterVec, policy string, rules []string) {
	for _, rule := range rules {
		counter.WithLabelValues(policy, rule).Inc()
	}
}

func verdict(pair limit.Comparison) string {
	switch {
	case pair.Old.Allowed && pair.New.Allowed:
		return "both_admit"
	case pair.Old.Allowed:
		return "only_new_refuses"
	case pair.New.Allowed:
		return "only_old_refuses"
	}
	return "both_refuse"
}

// Kinds of errors.
const (
	undecided = "undecided"
	unsettled = "unsettled"
	leaseLost = "lease_lost"
)

// register returns a new counter, or the one that is registered already.
func register(registerer prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	err := registerer.Register(counter)
	var registered prometheus.AlreadyRegisteredError
	switch {
	case errors.As(err, &registered):
		return registered.ExistingCollector.(*prometheus.CounterVec)
	case err != nil:
		panic(err)
	}
	return counter
}
