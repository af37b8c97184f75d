package limit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
)

// TestServeAfterBody has a handler read the body, and decide by what it says: the answers
// are those of middleware.
func TestServeAfterBody(t *testing.T) {
	limiter := limit.New(nil, nil)
	tenant := limit.By("tenant", func(*http.Request) string { return "none" })
	policy := mustPolicy(limiter, limit.Named("tokens", limit.Per(tenant, time.Hour, 10), limit.Rule{
		Name: "slots", Key: tenant, Limit: 1, Window: time.Minute, Algorithm: limit.Concurrency{}}))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := must.Get(io.ReadAll(r.Body))(t)
		given := limit.Request{Keys: map[string]string{"tenant": r.URL.Path}, Costs: map[string]int64{"slots": 1}, Cost: int64(len(body))}
		require.NoError(t, policy.Serve(w, r, given, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := limit.DecisionFrom(r.Context())
			assert.Equal(t, "tokens", d.Policy)
			assert.Equal(t, int64(10-len(body)), slices.Collect(d.Rules())[0].Remaining)
			w.WriteHeader(http.StatusAccepted)
		})))
	})
	send := func(path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
		return w
	}
	for range 2 {
		for _, path := range []string{"/a", "/b"} {
			w := send(path, "12345678")
			if w.Code == http.StatusAccepted {
				assert.Equal(t, `"per-tenant-1h";r=2;t=3600, "slots";r=0;t=60`, w.Header().Get("RateLimit"))
				continue
			}
			assert.Equal(t, http.StatusTooManyRequests, w.Code)
			assert.Equal(t, "3600", w.Header().Get("Retry-After"))
			assert.Equal(t, `"per-tenant-1h";r=2;t=3600, "slots";r=1`, w.Header().Get("RateLimit"), "no slot is held")
			assert.Contains(t, w.Body.String(), `"violated-policies":["per-tenant-1h"]`)
		}
	}
	for _, given := range []limit.Request{{UpTo: true, Cost: 1}, {Plan: "pro"}, {Class: "critical"}, {Cost: -1}, {Costs: map[string]int64{"no": 1}},
		{Keys: map[string]string{"tenat": "a"}}, {Keys: map[string]string{"tenant": "a", "ip": "192.0.2.1"}}} {
		w := httptest.NewRecorder()
		assert.Error(t, policy.Serve(w, httptest.NewRequest("GET", "/", nil), given, http.NotFoundHandler()))
		assert.Empty(t, w.Header())
	}
}

// TestServeAddress does not take the peer of a request for an address that is none.
func TestServeAddress(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("p", limit.Per(limit.ByHeader("X-Org").And(limit.ByIP), time.Hour, 10)))
	for _, row := range []struct {
		keys map[string]string
		ok   bool
	}{
		{map[string]string{"ip": "192.0.2.1"}, true},
		{map[string]string{"ip": ""}, true},
		{map[string]string{"header x-org": "a"}, true},
		{map[string]string{"header x-org": "a", "header X-ORG": "a"}, false},
		{map[string]string{"ip": "localhost"}, false},
		{map[string]string{"X-Org": "a"}, false},
	} {
		err := policy.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), limit.Request{Keys: row.keys}, http.NotFoundHandler())
		assert.Equal(t, row.ok, err == nil, "%v: %v", row.keys, err)
	}
}

// TestServeSettles has the handler behind Serve settle by name what it took, unless a set behind
// that has refused the request.
func TestServeSettles(t *testing.T) {
	limiter := limit.New(nil, nil)
	policy := mustPolicy(limiter, limit.Named("model",
		limit.Rule{Name: "requests", Key: limit.Everyone, Limit: 10, Window: time.Hour},
		limit.Rule{Name: "tokens", Key: limit.Everyone, Limit: 1_000, Window: time.Hour, Algorithm: limit.TokenBucket{Burst: 1_000}, Debt: 500}))
	inner := limiter.Limit(limit.Named("inner", limit.Global(time.Hour, 2)))
	left := func() (list []int64) {
		d := must.Get(policy.Peek(t.Context(), limit.Request{}))(t)
		for r := range d.Rules() {
			list = append(list, r.Remaining)
		}
		return list
	}
	given := limit.Request{Costs: map[string]int64{"requests": 1, "tokens": 100}, Settle: true}
	serve := func(used int64, settled error) {
		require.NoError(t, policy.Serve(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), given, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := limit.DecisionFrom(r.Context())
			inner(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			assert.ErrorIs(t, d.SettleCosts(r.Context(), map[string]int64{"tokens": used}), settled)
		})))
	}
	serve(40, nil)
	assert.Equal(t, []int64{9, 960}, left())
	serve(1_200, nil)
	assert.Equal(t, []int64{8, 0}, left(), "and 240 are owed")
	given.Costs["tokens"] = 0
	serve(1, limit.ErrSettled) // the inner set refuses, and everything is given back
	assert.Equal(t, []int64{8, 0}, left())
	stats := operate.ReadStats(limiter)
	assert.Equal(t, [...]int64{3, 3, 0}, [...]int64{stats.Reserved, stats.Settled, stats.Forgiven})
}

// TestNeverFits sends a request that costs more than its rule can ever hold: without a wait that
// helps, the document says so.
func TestNeverFits(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("p", limit.PerIP(time.Hour, 3)))
	w := httptest.NewRecorder()
	require.NoError(t, policy.Serve(w, httptest.NewRequest("GET", "/", nil), limit.Request{Cost: 4}, http.NotFoundHandler()))
	assert.Empty(t, w.Header()["Retry-After"])
	assert.JSONEq(t, `{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota exceeded", "status": 429,
		"detail": "No wait helps: the request asks for more than a rule can ever hold.", "violated-policies": ["per-ip-1h"]}`, w.Body.String())
}
