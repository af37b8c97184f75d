// Package routetest sends requests to limited routes, for the tests of this
// repository's own adapters.
package routetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// Do sends a request to a handler, without a server, with headers given as name,
// value, name, value.
func Do(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(method, path, headers))
	return w
}

func request(method, target string, headers []string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// Statuses sends n requests to a path, one after the other, and counts the statuses
// of their answers: with a server in front of the handler, or without one.
func Statuses(t *testing.T, h http.Handler, served bool, n int, path string, headers ...string) map[int]int {
	t.Helper()
	counts := make(map[int]int)
	if !served {
		for range n {
			counts[Do(h, "GET", path, headers...).Code]++
		}
		return counts
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for range n {
		r := request("GET", server.URL+path, headers)
		r.RequestURI = "" // of servers only
		response, err := server.Client().Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		response.Body.Close()
		counts[response.StatusCode]++
	}
	return counts
}

// FiveInTwoSeconds checks a new route with the rules of the documentation: five
// requests of a client are admitted, and the sixth is refused.
func FiveInTwoSeconds(t *testing.T, url string) {
	t.Helper()
	start := time.Now()
	for i := range 6 {
		response, err := http.Post(url, "", nil)
		require.NoError(t, err)
		response.Body.Close()
		if time.Since(start) > time.Second {
			t.Skip("the machine is too slow for six requests a second")
		}
		if i < 5 {
			require.Less(t, response.StatusCode, 300)
			continue
		}
		require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
		assert.Equal(t, "2", response.Header.Get("Retry-After"))
		assert.Equal(t, `"per-ip-2s";r=0;t=2, "global-1m";r=995;t=60`, response.Header.Get("RateLimit"))
	}
}

// Refused returns the names of the rules that refuse a request.
func Refused(d limit.Decision) (names []string) {
	for rule := range d.Rules() {
		if rule.Refused {
			names = append(names, rule.Name)
		}
	}
	return names
}

// Marked returns the names of the rules that marked a request: those of the sets around d,
// which is from [limit.DecisionFrom], and then those of d.
func Marked(d limit.Decision) (names []string) {
	if outer, ok := d.Outer(); ok {
		names = Marked(outer)
	}
	for rule := range d.Rules() {
		if rule.Marked {
			names = append(names, rule.Name)
		}
	}
	return names
}
