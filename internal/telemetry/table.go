// Package telemetry says what the metrics of package limit mean: their names, units and
// labels, and what a decision adds to each. Packages promlimit and otellimit export them.
package telemetry

import (
	"slices"
	"sync"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/operate"
)

// A Kind is how a metric adds up.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Metric is one row of the table in docs/metrics.md.
type Metric struct {
	Name   string // in OpenTelemetry
	Prom   string // in Prometheus
	Unit   string // of OpenTelemetry
	Kind   Kind
	Help   string
	Labels []string
	Bounds []float64 // upper bounds of the buckets of a histogram
}

// Values has the values of the labels that do not name a policy or a rule. Clients choose no label.
var Values = map[string][]string{
	"result":  results[:],
	"mode":    modes(),
	"verdict": {"both_admit", "both_refuse", "only_new_refuses", "only_old_refuses"},
	"kind":    {Undecided, Unsettled, LeaseLost},
}

// results are those of the words of [limit.Decision.Outcome] that a decision has at first.
var results = [...]string{"admitted", "refused", "redirected", "degraded", "marked"}

// Kinds of errors.
const (
	Undecided = "undecided"
	Unsettled = "unsettled"
	LeaseLost = "lease_lost"
)

func modes() (words []string) {
	for m := core.ModeExact; m <= core.ModeBarred; m++ {
		words = append(words, m.String())
	}
	return words
}

// The metrics of decisions.
var (
	Requests = &Metric{"rate_limiting.requests", "rate_limiting_requests_total", "{request}", Counter,
		"Requests by what they met, and how that was decided.", []string{"policy", "result", "mode"}, nil}
	Refusals = &Metric{"rate_limiting.rule_refusals", "rate_limiting_rule_refusals_total", "{request}", Counter,
		"Refusals by the rule that had no room.", []string{"policy", "rule"}, nil}
	Marks = &Metric{"rate_limiting.rule_marks", "rate_limiting_rule_marks_total", "{request}", Counter,
		"Requests that a rule marked because it had no room.", []string{"policy", "rule"}, nil}
	Shadows = &Metric{"rate_limiting.shadow_refusals", "rate_limiting_shadow_refusals_total", "{request}", Counter,
		"Requests that a shadow rule would have refused.", []string{"policy", "rule"}, nil}
	Agreement = &Metric{"rate_limiting.agreement", "rate_limiting_agreement_total", "{request}", Counter,
		"Verdicts of a shadow rule and of the rule that it may replace.", []string{"policy", "rule", "replaces", "verdict"}, nil}
	Errors = &Metric{"rate_limiting.errors", "rate_limiting_errors_total", "{request}", Counter,
		"Requests that could not be decided or settled, or that lost a lease.", []string{"kind"}, nil}
	GivenBack = &Metric{"rate_limiting.given_back", "rate_limiting_given_back_total", "{request}", Counter,
		"Admitted requests that gave back what they took, since a rule set behind theirs refused them.", []string{"policy"}, nil}
	Latency = &Metric{"rate_limiting.decision.duration", "rate_limiting_decision_duration_seconds", "s", Histogram,
		"Time that the store took for a decision.", []string{"mode"},
		[]float64{1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}}
	Used = &Metric{"rate_limiting.rule.used_ratio", "rate_limiting_rule_used_ratio", "1", Histogram,
		"Part of a rule's capacity that the key of a request has used, after the decision.", []string{"policy", "rule"},
		[]float64{0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.999}}
	Waits = &Metric{"rate_limiting.wait.duration", "rate_limiting_wait_duration_seconds", "s", Histogram,
		"Time that requests waited for room, of those that waited.", []string{"policy", "result"},
		[]float64{1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}}
)

// The metrics of limiters, which have no labels.
var (
	Waiters = &Metric{"rate_limiting.waiters", "rate_limiting_waiters", "{request}", Gauge,
		"Requests that wait for room.", nil, nil}
	Unavailable = &Metric{"rate_limiting.store.unavailable", "rate_limiting_store_unavailable", "{store}", Gauge,
		"Stores without which requests are decided now.", nil, nil}
	Blocked = &Metric{"rate_limiting.store.blocked", "rate_limiting_store_blocked_total", "{request}", Counter,
		"Requests that were decided without the store although it works.", nil, nil}
	Outages = &Metric{"rate_limiting.store.outages", "rate_limiting_store_outages_total", "{outage}", Counter,
		"Times that requests began to be decided without the store.", nil, nil}
	Owed = &Metric{"rate_limiting.store.owed", "rate_limiting_store_owed", "{unit}", Gauge,
		"Units admitted without the store that it is not charged for yet.", nil, nil}
	Paid = &Metric{"rate_limiting.store.paid", "rate_limiting_store_paid_total", "{unit}", Counter,
		"Units admitted without the store that it was charged for afterwards.", nil, nil}
	Reserved = &Metric{"rate_limiting.reservations", "rate_limiting_reservations_total", "{request}", Counter,
		"Reservations that were admitted.", nil, nil}
	Settled = &Metric{"rate_limiting.settlements", "rate_limiting_settlements_total", "{request}", Counter,
		"Reservations that were settled or given back.", nil, nil}
	Forgiven = &Metric{"rate_limiting.forgiven", "rate_limiting_forgiven_total", "{unit}", Counter,
		"Units that requests cost beyond what their rules may owe.", nil, nil}
	HoldsEnded = &Metric{"rate_limiting.holds.ended", "rate_limiting_holds_ended_total", "{hold}", Counter,
		"Holds that ended unsettled, and were given back by this process.", nil, nil}
	Unheld = &Metric{"rate_limiting.holds.refused", "rate_limiting_holds_refused_total", "{request}", Counter,
		"Admitted requests with Hold that could not be held.", nil, nil}
)

// OfDecisions and OfLimiters are all metrics, in the order of the documentation.
var (
	OfDecisions = []*Metric{Requests, Refusals, Marks, Shadows, Agreement, Errors, GivenBack, Latency, Used, Waits}
	OfLimiters  = []*Metric{Waiters, Unavailable, Blocked, Outages, Owed, Paid, Reserved, Settled, Forgiven, HoldsEnded, Unheld}
)

// Limiters is a set of limiters whose metrics are added up. The zero Limiters is empty. It is safe
// for concurrent use.
type Limiters struct {
	mu   sync.Mutex
	list []*limit.Limiter
}

// Add adds a limiter, once.
func (l *Limiters) Add(limiter *limit.Limiter) {
	if limiter == nil {
		panic("limit: the limiter is nil: make it with limit.New")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.list, limiter) {
		l.list = append(l.list, limiter)
	}
}

// Values returns the values of [OfLimiters].
func (l *Limiters) Values() (values [11]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, limiter := range l.list {
		stats := operate.ReadStats(limiter)
		if stats.Unavailable {
			values[1]++
		}
		for i, n := range [...]int64{stats.Waiters, 0, stats.Blocked, stats.Outages, stats.Owed, stats.Paid, stats.Reserved, stats.Settled, stats.Forgiven, stats.Ended, stats.Unheld} {
			values[i] += n
		}
	}
	return values
}
