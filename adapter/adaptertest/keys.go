package adaptertest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// forgedAddress sends every header in which a client might claim an address,
// to a limiter that trusts no proxy. Nothing may change.
func (s suite) forgedAddress(t *testing.T) {
	names := []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP",
		"X-Client-IP", "X-Cluster-Client-IP", "X-Forwarded", "Forwarded-For", "X-AppEngine-Remote-Addr", "Via"}
	limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
	c := serve(t, s.one(limiter, ok, limit.Rules(limit.PerIP(time.Hour, int64(len(names))))))

	for i, name := range names {
		address := fmt.Sprintf("203.0.113.%d", i)
		value := address
		if name == "Forwarded" {
			value = "for=" + address
		}
		a := c.send("GET", "/", name, value)
		require.Equal(t, http.StatusNoContent, a.StatusCode, name)
		require.Equal(t, fmt.Sprintf(`"per-ip-1h";r=%d;t=3600`, len(names)-1-i), a.Header.Get("RateLimit"), name)
	}
	for _, name := range names {
		require.Equal(t, http.StatusTooManyRequests, c.send("GET", "/", name, "203.0.113.200").StatusCode, name)
	}
}

// trustedProxy takes the client from the header of a proxy that is trusted.
func (s suite) trustedProxy(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	limiter := limit.New(nil, &limit.Options{Proxies: limit.Proxies{Trusted: trusted}})
	c := serve(t, s.one(limiter, ok, limit.Rules(limit.PerIP(time.Hour, 1))))

	require.Equal(t, http.StatusNoContent, c.send("GET", "/", "X-Forwarded-For", "203.0.113.1").StatusCode)
	require.Equal(t, http.StatusNoContent, c.send("GET", "/", "X-Forwarded-For", "203.0.113.2").StatusCode)
	assert.Equal(t, http.StatusTooManyRequests,
		c.send("GET", "/", "X-Forwarded-For", "198.51.100.7, 203.0.113.2").StatusCode, "the client wrote the first entry")
}

// pathValue checks that a path value is decoded once.
func (s suite) pathValue(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	router.Handle("GET", "/users/{id}", ok, limit.Rules(limit.Per(limit.ByPathValue("id"), time.Hour, 1)))
	c := serve(t, router)

	c.expect("GET", "/users/alice", 204, 429)
	c.expect("GET", "/users/bob", 204)
	c.expect("GET", "/users/%61lice", 429) // another spelling is the same user
	c.expect("GET", "/users/alice%20", 429)
	c.expect("GET", "/users/%2561lice", 204) // the user "%61lice"
	c.expect("GET", "/users/alice?id=carol", 429)
}

type planKey struct{}

// callers checks that a rule has the limit of the caller's plan, which authentication
// has put into the context of the request; an override takes precedence, and an exempt
// caller is not charged. Headers and documents show the limit of the caller.
func (s suite) callers(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{
		Caller: limit.Caller[*http.Request]{
			User:  func(r *http.Request) string { return r.Header.Get("X-User") },
			Plan:  func(r *http.Request) string { plan, _ := r.Context().Value(planKey{}).(string); return plan },
			Class: func(r *http.Request) string { return r.Header.Get("X-Class") },
		},
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
