package adaptertest

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

type planKey struct{}

// callers checks that a rule has the limit of the caller's plan, which authentication
// has put into the context of the request; an override takes precedence, and an exempt
// caller is not charged. Headers and documents show the limit of the caller.
func (s suite) callers(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{
		Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }, Plan: func(r *http.Request) string { plan, _ := r.Context().Value(planKey{}).(string); return plan }, Class: func(r *http.Request) string { return r.Header.Get("X-Class") }},
		Override: func(_, rule, key string) int64 {
			if rule == "per-user-1m" && key == "dora" {
				return 4
			}
			return 0
		},
	})
	router := s.framework(limiter)
	router.Handle("GET", "/item", ok, limit.MustParse("1/1m per user plan pro 3 plan 2 2 exempt user root; 50/1m global reserve critical 40"))
	authenticated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		router.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, r.Header.Get("X-Plan"))))
	})
	c := serve(t, authenticated)

	const global = `"global-1m";q=50;w=60`
	for _, row := range []struct {
		user, plan, header string
		admits             int
	}{
		{"alice", "", `"per-user-1m";q=1;w=60, ` + global, 1},
		{"bob", "pro", `"per-user-1m";q=3;w=60, ` + global, 3},
		{"dora", "pro", `"per-user-1m";q=4;w=60, ` + global, 4},
	} {
		for n := range row.admits + 1 {
			a := c.send("GET", "/item", "X-User", row.user, "X-Plan", row.plan)
			if n < row.admits {
				require.Equal(t, http.StatusNoContent, a.StatusCode, a.body)
			} else {
				require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
			}
			assert.Equal(t, row.header, a.Header.Get("RateLimit-Policy"))
		}
	}
	for range 2 { // 8 are taken
		a := c.send("GET", "/item", "X-User", "root")
		require.Equal(t, http.StatusNoContent, a.StatusCode, a.body)
		assert.Equal(t, global, a.Header.Get("RateLimit-Policy"))
	}
	assert.Equal(t, http.StatusTooManyRequests, c.send("GET", "/item", "X-User", "root").StatusCode, "the rest is reserved")
	assert.Equal(t, http.StatusNoContent, c.send("GET", "/item", "X-User", "root", "X-Class", "critical").StatusCode)
}
