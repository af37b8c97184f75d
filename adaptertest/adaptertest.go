// Package adaptertest is the suite that every adapter passes: the same
// requests, on a real server, get the same answers on every framework.
package adaptertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// Routes takes routes. Paths have their parameters in braces, "/users/{id}".
type Routes interface {
	Handle(method, path string, h http.Handler, rules ...limit.RuleSet)
}

// A Router is a framework as the suite uses it.
type Router interface {
	http.Handler
	Routes

	// Throttle takes a route whose bodies rules slow.
	Throttle(method, path string, h http.Handler, rules limit.RuleSet, options *throttle.Options)

	// Use puts rules before everything, requests that match no route as well.
	// It is called before the first route.
	Use(rules limit.RuleSet)

	// Group returns the routes below a prefix, with rules before them.
	Group(prefix string, rules limit.RuleSet) Routes
}

// A Framework returns an empty router, on which rules are decided by limiter.
type Framework func(limiter *limit.Limiter) Router

// Colons turns the braces of a path into the colons of Gin and Echo.
func Colons(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// Run runs the suite.
func Run(t *testing.T, framework Framework) {
	s := suite{framework}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"refusal", s.refusal},
		{"retry after", s.retryAfter},
		{"all or nothing", s.allOrNothing},
		{"header styles", s.headerStyles},
		{"refuse hook", s.refuseHook},
		{"observe", s.observe},
		{"store fails", s.storeFails},
		{"store out of reach", s.outOfReach},
		{"head", s.head},
		{"forged address", s.forgedAddress},
		{"trusted proxy", s.trustedProxy},
		{"path value", s.pathValue},
		{"routes are policies", s.routesArePolicies},
		{"named", s.named},
		{"stacked", s.stacked},
		{"unmatched", s.unmatched},
		{"invented methods", s.inventedMethods},
		{"cancelled", s.cancelled},
		{"concurrent", s.concurrent},
		{"costs", s.costs},
		{"waits", s.waits},
		{"gone while waiting", s.gone},
		{"late", s.late},
		{"leases", s.leases},
		{"leases of broken requests", s.leasesOfBrokenRequests},
		{"leases of closed connections", s.leasesOfClosedConnections},
		{"leases of those who wait", s.leasesOfWaiting},
		{"lost leases", s.lostLeases},
		{"throttle rate", s.throttleRate},
		{"throttled bodies", s.throttledBodies},
		{"settles", s.settles},
		{"settles what breaks", s.settlesBroken},
		{"invalid rules", s.invalidRules},
		{"hostile requests", s.hostileRequests},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

type suite struct{ framework Framework }

// ok is a handler that can be told from the frameworks' own answers.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// A client sends requests to one server.
type client struct {
	t    *testing.T
	base string
}

func serve(t *testing.T, h http.Handler) client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return client{t, server.URL}
}

// An answer is a response with its body read.
type answer struct {
	*http.Response
	body string
}

// send sends a request with headers given as name, value, name, value.
func (c client) send(method, path string, headers ...string) answer {
	c.t.Helper()
	r, err := http.NewRequest(method, c.base+path, nil)
	require.NoError(c.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(c.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	return answer{response, string(body)}
}

// Do hands a request with headers given as name, value to a handler, without a
// server.
func Do(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
