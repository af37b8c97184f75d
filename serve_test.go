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
)

// TestServeAfterBody has a handler read the body, and decide by what it says: the answers
// are those of middleware.
func TestServeAfterBody(t *testing.T) {
	limiter := limit.New(nil, nil)
	tenant := limit.By("tenant", func(*http.Request) string { return "none" })
	policy := mustPolicy(limiter, limit.Named("tokens", limit.Per(tenant, time.Hour, 10), limit.Rule{
		Name: "slots", Key: tenant, Limit: 1, Window: time.Minute, Algorithm: limit.Concurrency{}}))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
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
	for _, given := range []limit.Request{{UpTo: true, Cost: 1}, {Settle: true}, {Plan: "pro"}, {Class: "critical"}, {Cost: -1}, {Costs: map[string]int64{"no": 1}}} {
		w := httptest.NewRecorder()
		assert.Error(t, policy.Serve(w, httptest.NewRequest("GET", "/", nil), given, http.NotFoundHandler()))
		assert.Empty(t, w.Header())
	}
}
