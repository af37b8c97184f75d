package promlimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
	"github.com/routelimit/limit/promlimit"
)

// A store fails while err is set.
type store struct {
	core.Store
	err error
}

func (s *store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if s.err != nil {
		return core.Decision{}, s.err
	}
	return s.Store.Take(ctx, policy, charges)
}

// TestObserve counts the decisions of requests, whose paths must not become labels.
func TestObserve(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	inner := &store{Store: memstore.New(nil)}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := func() http.Handler {
		limiter := limit.New(inner, &limit.Options{Observe: promlimit.Observe(registry), Log: slog.New(slog.DiscardHandler),
			Exempt: func(r *http.Request) bool { return r.Header.Get("Settle") == "exempt" },
			Bar: func(r *http.Request) time.Duration {
				if r.Header.Get("Settle") == "barred" {
					return limit.Never
				}
				return 0
			}})
		settled := limit.Global(time.Hour, 1000)
		settled.Settle = func(r *http.Request, _ int) int64 {
			if r.Header.Get("Settle") != "" {
				return -1
			}
			return 1
		}
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 5), settled))(nothing))
		mux.Handle("GET /report", limiter.Limit(limit.Named("reports", limit.Concurrent(limit.Everyone, 1)))(nothing))
		return mux
	}
	one, another := server(), server() // with one registry
	get := func(h http.Handler, path, settle string) {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Settle", settle)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}

	for range 4 {
		get(one, "/items/1", "")
	}
	get(one, "/items/1", "wrong")
	for range 3 {
		get(one, "/items/2", "")
	}
	inner.err = core.ErrUnavailable
	get(another, "/items/3", "")
	inner.err = errors.New("an invalid reply")
	for range 2 {
		get(one, "/report", "")
	}
	inner.err = nil
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
`)))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
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
		policy, err := limiter.Policy(limit.Named(name, limit.MustParse(rules).Rules()...))
		require.NoError(t, err)
		h := policy.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 4 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiting_agreement_total Verdicts of a shadow rule and of the rule that it may replace.
# TYPE rate_limiting_agreement_total counter
rate_limiting_agreement_total{policy="shadows",replaces="old",rule="new",verdict="both_admit"} 1
rate_limiting_agreement_total{policy="shadows",replaces="old",rule="new",verdict="both_refuse"} 1
rate_limiting_agreement_total{policy="shadows",replaces="old",rule="new",verdict="only_new_refuses"} 2
# HELP rate_limiting_requests_total Requests by what they met, and how that was decided.
# TYPE rate_limiting_requests_total counter
rate_limiting_requests_total{mode="exact",policy="degrades",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="degrades",result="degraded"} 3
rate_limiting_requests_total{mode="exact",policy="marks",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="marks",result="marked"} 3
rate_limiting_requests_total{mode="exact",policy="redirects",result="admitted"} 1
rate_limiting_requests_total{mode="exact",policy="redirects",result="redirected"} 3
rate_limiting_requests_total{mode="exact",policy="shadows",result="admitted"} 3
rate_limiting_requests_total{mode="exact",policy="shadows",result="refused"} 1
# HELP rate_limiting_rule_marks_total Requests that a rule marked because it had no room.
# TYPE rate_limiting_rule_marks_total counter
rate_limiting_rule_marks_total{policy="marks",rule="m"} 3
# HELP rate_limiting_shadow_refusals_total Requests that a shadow rule would have refused.
# TYPE rate_limiting_shadow_refusals_total counter
rate_limiting_shadow_refusals_total{policy="shadows",rule="new"} 3
`), "rate_limiting_agreement_total", "rate_limiting_requests_total", "rate_limiting_rule_marks_total", "rate_limiting_shadow_refusals_total"))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
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

func BenchmarkObserve(b *testing.B) {
	observe := promlimit.Observe(prometheus.NewPedanticRegistry())
	policy, err := limit.New(nil, nil).Policy(limit.Named("p", limit.Global(time.Hour, 1000)))
	require.NoError(b, err)
	d, err := policy.Take(b.Context(), limit.Request{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		observe(nil, d, nil)
	}
}
