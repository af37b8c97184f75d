package promlimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/ops/metrics/promlimit"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// A store fails with the last error that fail was given. The guard asks it in the background
// too.
type store struct {
	core.Store
	err atomic.Pointer[error]
}

func (s *store) fail(err error) { s.err.Store(&err) }

func (s *store) Take(ctx context.Context, asks []core.Ask) error {
	if err := s.err.Load(); err != nil && *err != nil {
		return *err
	}
	return s.Store.Take(ctx, asks)
}

// TestObserve counts the decisions of requests, whose paths must not become labels.
func TestObserve(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	inner := &store{Store: memstore.New(nil)}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := func() http.Handler {
		limiter := limit.New(inner, &limit.Options{Observe: promlimit.Observe(registry), Log: slog.New(slog.DiscardHandler),
			Exempt: func(c limit.Client) bool { return c.Request.Header.Get("Settle") == "exempt" },
			Bar: func(c limit.Client) time.Duration {
				if c.Request.Header.Get("Settle") == "barred" {
					return limit.Never
				}
				return 0
			}})
		settled := limit.Global(time.Hour, 1000)
		settled.Settle = rules.SettleBy("units", func(r *http.Request, _ int) int64 {
			if r.Header.Get("Settle") != "" {
				return -1
			}
			return 1
		})
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 5), settled))(nothing))
		mux.Handle("GET /report", limiter.Limit(limit.Named("reports", limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}}))(nothing))
		return mux
	}
	one, another := server(), server() // with one registry
	get := func(h http.Handler, path, settle string) {
		routetest.Do(h, "GET", path, "Settle", settle)
	}

	for range 4 {
		get(one, "/items/1", "")
	}
	get(one, "/items/1", "wrong")
	for range 3 {
		get(one, "/items/2", "")
	}
	inner.fail(core.ErrUnavailable)
	get(another, "/items/3", "")
	inner.fail(errors.New("an invalid reply"))
	for range 2 {
		get(one, "/report", "")
	}
	inner.fail(nil)
	get(one, "/report", "")
	get(one, "/report", "exempt")
	get(one, "/report", "barred")

	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiting_errors_total Requests that could not be decided or settled, or that lost a lease.
# TYPE rate_limiting_errors_total counter
rate_limiting_errors_total{kind="lease_lost"} 0
rate_limiting_errors_total{kind="undecided"} 2
rate_limiting_errors_total{kind="unsettled"} 1
# HELP rate_limiting_requests_total Requests by what they met, and how that was decided.
# TYPE rate_limiting_requests_total counter
rate_limiting_requests_total{mode="barred",policy="reports",result="refused"} 1
rate_limiting_requests_total{mode="exact",policy="GET /items/{id}",result="admitted"} 5
rate_limiting_requests_total{mode="exact",policy="reports",result="admitted"} 1
rate_limiting_requests_total{mode="exempt",policy="reports",result="admitted"} 1
rate_limiting_requests_total{mode="local",policy="GET /items/{id}",result="admitted"} 1
rate_limiting_requests_total{mode="remembered",policy="GET /items/{id}",result="refused"} 3
# HELP rate_limiting_rule_refusals_total Refusals by the rule that had no room.
# TYPE rate_limiting_rule_refusals_total counter
rate_limiting_rule_refusals_total{policy="GET /items/{id}",rule="per-ip-1h"} 3
`), "rate_limiting_errors_total", "rate_limiting_requests_total", "rate_limiting_rule_refusals_total",
		"rate_limiting_rule_marks_total", "rate_limiting_shadow_refusals_total", "rate_limiting_agreement_total"))
	problems := must.Get(testutil.GatherAndLint(registry))(t)
	assert.Empty(t, problems)
}

// TestObserveOutcomes counts what requests met, and what rules that only watch say.
func TestObserveOutcomes(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	limiter := limit.New(nil, &limit.Options{Observe: promlimit.Observe(registry)})
	for name, rules := range map[string]string{
		"redirects": "1/1h global refuse redirect /busy",
		"degrades":  "1/1h global refuse degrade",
		"marks":     "m: 1/1h global refuse mark",
		"shadows":   "old: 3/1h global; new: 1/1h global shadow replaces old",
	} {
		policy := must.Get(limiter.Policy(limit.Named(name, limit.MustParse(rules).Rules()...)))(t)
		h := policy.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 4 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
	}
	application := must.Get(limiter.Policy(limit.Named("application", limit.Global(time.Hour, 10))))(t)
	route := application.Handler(limiter.Limit(limit.Named("route", limit.Global(time.Hour, 1)))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for range 4 {
		route.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiting_agreement_total Verdicts of a shadow rule and of the rule that it may replace.
# TYPE rate_limiting_agreement_total counter
rate_limiting_agreement_total{policy="shadows",replaces="old",rule="new",verdict="both_admit"} 1
rate_limiting_agreement_total{policy="shadows",replaces="old",rule="new",verdict="both_refuse"} 1
rate_limiting_agreement_total{policy="shadows",replaces="old",rule="new",verdict="only_new_refuses"} 2
# HELP rate_limiting_errors_total Requests that could not be decided or settled, or that lost a lease.
# TYPE rate_limiting_errors_total counter
rate_limiting_errors_total{kind="lease_lost"} 0
rate_limiting_errors_total{kind="undecided"} 0
rate_limiting_errors_total{kind="unsettled"} 0
# HELP rate_limiting_given_back_total Admitted requests that gave back what they took, since a rule set behind theirs refused them.
# TYPE rate_limiting_given_back_total counter
rate_limiting_given_back_total{policy="application"} 3
# HELP rate_limiting_requests_total Requests by what they met, and how that was decided.
# TYPE rate_limiting_requests_total counter
rate_limiting_requests_total{mode="exact",policy="application",result="admitted"} 4
rate_limiting_requests_total{mode="exact",policy="degrades",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="degrades",result="degraded"} 3
rate_limiting_requests_total{mode="exact",policy="marks",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="marks",result="marked"} 3
rate_limiting_requests_total{mode="exact",policy="redirects",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="redirects",result="redirected"} 3
rate_limiting_requests_total{mode="exact",policy="route",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="route",result="refused"} 3
rate_limiting_requests_total{mode="exact",policy="shadows",result="admitted"} 3
rate_limiting_requests_total{mode="exact",policy="shadows",result="refused"} 1
# HELP rate_limiting_rule_marks_total Requests that a rule marked because it had no room.
# TYPE rate_limiting_rule_marks_total counter
rate_limiting_rule_marks_total{policy="marks",rule="m"} 3
# HELP rate_limiting_shadow_refusals_total Requests that a shadow rule would have refused.
# TYPE rate_limiting_shadow_refusals_total counter
rate_limiting_shadow_refusals_total{policy="shadows",rule="new"} 3
`), "rate_limiting_agreement_total", "rate_limiting_errors_total", "rate_limiting_given_back_total",
		"rate_limiting_requests_total", "rate_limiting_rule_marks_total", "rate_limiting_shadow_refusals_total"))
	problems := must.Get(testutil.GatherAndLint(registry))(t)
	assert.Empty(t, problems)
}

// TestObserveLosses counts a lease that was lost while its request was served.
func TestObserveLosses(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	promlimit.Observe(registry)(nil, limit.Decision{Allowed: true}, errors.Join(errors.New("the reason"), limit.ErrLeaseLost))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiting_errors_total Requests that could not be decided or settled, or that lost a lease.
# TYPE rate_limiting_errors_total counter
rate_limiting_errors_total{kind="lease_lost"} 1
rate_limiting_errors_total{kind="undecided"} 0
rate_limiting_errors_total{kind="unsettled"} 0
`)))
}

// TestObserveCannotRegister registers another metric of the same name first.
func TestObserveCannotRegister(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "rate_limiting_requests_total", Help: "Other."}))
	assert.Panics(t, func() { promlimit.Observe(registry) })
}

// TestHistograms fills a rule to its limit, waits, and measures what the store took.
func TestHistograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		limiter := limit.New(&slow{memstore.New(nil)}, &limit.Options{Observe: promlimit.Observe(registry)})
		policy := must.Get(limiter.Policy(limit.Named("p", limit.MustParse("r: 4/1m global").Rules()...)))(t)
		for range 5 {
			must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		}
		must.Get(policy.Wait(t.Context(), limit.Request{}))(t)

		used := histogram(t, registry, "rate_limiting_rule_used_ratio")
		assert.EqualValues(t, 6, used.GetSampleCount())
		assert.InDelta(t, 0.25+0.5+0.75+1+1+0.25, used.GetSampleSum(), 1.01, "Wait may find more room")
		latency := histogram(t, registry, "rate_limiting_decision_duration_seconds")
		assert.EqualValues(t, 5, latency.GetSampleCount(), "the last refusal was remembered")
		assert.InDelta(t, 5e-3, latency.GetSampleSum(), 1e-6)
		waits := histogram(t, registry, "rate_limiting_wait_duration_seconds")
		assert.EqualValues(t, 1, waits.GetSampleCount())
		assert.InDelta(t, 60, waits.GetSampleSum(), 1)
	})
}

// TestRatios adds the values of two observers to one histogram.
func TestRatios(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for range 2 {
		limiter := limit.New(nil, &limit.Options{Observe: promlimit.Observe(registry)})
		policy := must.Get(limiter.Policy(limit.Named("p", limit.MustParse("r: 4/1m global").Rules()...)))(t)
		for range 5 {
			must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		}
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiting_rule_used_ratio Part of a rule's capacity that the key of a request has used, after the decision.
# TYPE rate_limiting_rule_used_ratio histogram
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.1"} 0
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.25"} 2
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.5"} 4
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.75"} 6
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.8"} 6
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.9"} 6
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.95"} 6
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="0.999"} 6
rate_limiting_rule_used_ratio_bucket{policy="p",rule="r",le="+Inf"} 10
rate_limiting_rule_used_ratio_sum{policy="p",rule="r"} 7
rate_limiting_rule_used_ratio_count{policy="p",rule="r"} 10
`), "rate_limiting_rule_used_ratio"))
}

// TestRatiosInOutage checks that a request that is refused or admitted since the store is
// unavailable says nothing of how full a rule is.
func TestRatiosInOutage(t *testing.T) {
	for _, on := range []core.OnError{limit.Refuse, limit.Allow} {
		registry := prometheus.NewPedanticRegistry()
		inner := &store{Store: memstore.New(nil)}
		limiter := limit.New(inner, &limit.Options{Observe: promlimit.Observe(registry), Log: slog.New(slog.DiscardHandler)})
		policy := must.Get(limiter.Policy(limit.Named("p", limit.Rule{Key: limit.Everyone, Limit: 4, Window: time.Minute, OnStoreError: on})))(t)
		for _, err := range []error{nil, core.ErrUnavailable} {
			inner.fail(err)
			must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		}
		used := histogram(t, registry, "rate_limiting_rule_used_ratio")
		assert.EqualValues(t, 1, used.GetSampleCount())
		assert.InDelta(t, 0.25, used.GetSampleSum(), 0.01)
	}
}

// A slow store takes a millisecond for each decision.
type slow struct{ core.Store }

func (s *slow) Take(ctx context.Context, asks []core.Ask) error {
	time.Sleep(time.Millisecond)
	return s.Store.Take(ctx, asks)
}

// histogram returns the first histogram of a name.
func histogram(t *testing.T, registry *prometheus.Registry, name string) *dto.Histogram {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	require.Fail(t, "no metric "+name)
	return nil
}

// TestWatch adds up two limiters, one of which is watched twice.
func TestWatch(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	failing := &store{Store: memstore.New(nil)}
	for _, s := range []core.Store{failing, nil} {
		limiter := limit.New(s, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		promlimit.Watch(registry, limiter)
		promlimit.Watch(registry, limiter)
		policy := must.Get(limiter.Policy(limit.Named("p", limit.Global(time.Hour, 100))))(t)
		for i := range 3 {
			d := must.Get(policy.Take(t.Context(), limit.Request{Settle: true}))(t)
			if i == 0 {
				require.NoError(t, d.Settle(t.Context(), 0))
			}
		}
		failing.fail(core.ErrOutOfReach)
		for range 5 {
			must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		}
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiting_forgiven_total Units that requests cost beyond what their rules may owe.
# TYPE rate_limiting_forgiven_total counter
rate_limiting_forgiven_total 0
# HELP rate_limiting_holds_ended_total Holds that ended unsettled, and were given back by this process.
# TYPE rate_limiting_holds_ended_total counter
rate_limiting_holds_ended_total 0
# HELP rate_limiting_holds_refused_total Admitted requests with Hold that could not be held.
# TYPE rate_limiting_holds_refused_total counter
rate_limiting_holds_refused_total 0
# HELP rate_limiting_reservations_total Reservations that were admitted.
# TYPE rate_limiting_reservations_total counter
rate_limiting_reservations_total 6
# HELP rate_limiting_settlements_total Reservations that were settled or given back.
# TYPE rate_limiting_settlements_total counter
rate_limiting_settlements_total 2
# HELP rate_limiting_store_blocked_total Requests that were decided without the store although it works.
# TYPE rate_limiting_store_blocked_total counter
rate_limiting_store_blocked_total 0
# HELP rate_limiting_store_outages_total Times that requests began to be decided without the store.
# TYPE rate_limiting_store_outages_total counter
rate_limiting_store_outages_total 1
# HELP rate_limiting_store_owed Units admitted without the store that it is not charged for yet.
# TYPE rate_limiting_store_owed gauge
rate_limiting_store_owed 5
# HELP rate_limiting_store_paid_total Units admitted without the store that it was charged for afterwards.
# TYPE rate_limiting_store_paid_total counter
rate_limiting_store_paid_total 0
# HELP rate_limiting_store_unavailable Stores without which requests are decided now.
# TYPE rate_limiting_store_unavailable gauge
rate_limiting_store_unavailable 1
# HELP rate_limiting_waiters Requests that wait for room.
# TYPE rate_limiting_waiters gauge
rate_limiting_waiters 0
`)))
	problems := must.Get(testutil.GatherAndLint(registry))(t)
	assert.Empty(t, problems)
	assert.Panics(t, func() { promlimit.Watch(registry, nil) })
}
