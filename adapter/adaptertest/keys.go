package adaptertest

import (
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
	router := s.framework(limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)}))
	router.Handle("GET", "/", ok, limit.Rules(limit.PerIP(time.Hour, int64(len(names)))))
	c := serve(t, router)

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
	router := s.framework(limit.New(nil, &limit.Options{
		Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
	}))
	router.Handle("GET", "/", ok, limit.Rules(limit.PerIP(time.Hour, 1)))
	c := serve(t, router)

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
