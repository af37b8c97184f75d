// Package adaptertest is the suite that every adapter for an HTTP framework must
// pass. It sends the same requests to a router of the framework, most of them to a
// real server, and requires the same answers.
//
// The test of an adapter is its harness, a [Router]:
//
//	type router struct {
//		*fancy.Engine
//		routes
//	}
//
//	type routes struct {
//		group   *fancy.Group
//		limiter *fancylimit.Limiter
//	}
//
//	func (r routes) Handle(method, path string, h http.Handler, rules ...limit.RuleSet) {
//		var chain []fancy.Middleware
//		for _, set := range rules {
//			chain = append(chain, r.limiter.Limit(set))
//		}
//		r.group.Add(method, adaptertest.Colons(path), fancy.Wrap(h), chain...)
//	}
//
//	// Use, After, Group and Throttle likewise.
//
//	func newRouter(l *limit.Limiter) adaptertest.Router {
//		e := fancy.New()
//		return router{e, routes{e.Group(""), fancylimit.New(l)}}
//	}
//
//	func TestAdapter(t *testing.T)  { adaptertest.Run(t, newRouter) }
//	func FuzzRequest(f *testing.F) { adaptertest.Fuzz(f, newRouter) }
//
// The tests of package echolimit have a complete one.
//
// The suite checks that a request is charged to every rule or to none, and to whom: addresses
// behind proxies, users, path values, plans, hostile input; what requests meet that are refused,
// undecided, exempt or barred, and what Observe hears; costs and settlements by status; scopes and
// layers; waits, queues and leases, on HTTP/1.1 and HTTP/2; slowed bodies; and that invalid rules
// panic where a route is declared.
//
// The suite does not check what only one framework has, and the adapter's own tests do:
// its User, Refuse and Fail functions, which take the framework's context, its
// Mount function, the framework's error handling, and middleware that runs before
// the router. [Mount] checks the errors of a Mount function. Adapters for protocols
// other than HTTP test themselves.
package adaptertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// A Framework returns an empty router, on which limiter decides.
type Framework func(limiter *limit.Limiter) Router

// A Router is a router of a framework.
type Router interface {
	http.Handler
	Routes

	// Throttle adds a route with bodies that are slowed by rules.
	Throttle(method, path string, h http.Handler, rules limit.RuleSet, options *throttle.Options)

	// Use adds rules before every request, those without a route too. It is
	// called before the first route is added. Like the adapter, it may panic with a
	// rules.Error if the rules are not named and the route is not known there.
	Use(rules limit.RuleSet)

	// After adds middleware of the framework around the rules and handlers of the routes
	// that are added later, behind the rules of Use. When they have returned and have
	// answered nothing, it calls answer with the framework's writer, as error middleware
	// does.
	After(answer http.Handler)

	// Group returns the routes below a prefix, with rules before them. It may panic
	// as Use may.
	Group(prefix string, rules limit.RuleSet) Routes
}

// Routes adds routes to a router or to a group of it.
type Routes interface {
	// Handle adds a route with rule sets before its handler, which are decided in
	// their order. A path has its parameters in braces: "/users/{id}".
	Handle(method, path string, h http.Handler, rules ...limit.RuleSet)
}

// Colons writes the parameters of a path with colons, for frameworks that do:
// "/users/:id" for "/users/{id}".
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
		{"retry after", bubble(s.retryAfter)},
		{"flows", s.flows},
		{"hooks without a status", s.hooks},
		{"bodies of exempt and barred clients", s.screenedBodies},
		{"many routes", s.manyRoutes},
		{"layers", s.layers},
		{"layers around timeouts", s.layersAroundTimeouts},
		{"layers of requests of handlers", s.layersOfHandlers},
		{"canceled", s.canceled},
		{"concurrent", s.concurrent},
		{"settles broken requests", s.settlesBroken},
		{"settles by a later answer", s.settlesLater},
		{"settles a later panic", s.settlesRecovered},
		{"settles requests of handlers", s.settlesRequestsOfHandlers},
		{"settles streams and hijacked connections", s.settlesStreams},
		{"settles by what handlers say they use", s.settlesUsed},
		{"settles what a client has reset", s.settlesReset},
		{"settles and releases", s.settlesAndReleases},
		{"queue", bubble(s.waits)},
		{"client disconnects in a queue", bubble(s.disconnects)},
		{"slot after the deadline", bubble(s.late)},
		{"leases", s.leases},
		{"leases of broken requests", s.leasesOfBrokenRequests},
		{"leases of closed connections", s.leasesOfClosedConnections},
		{"leases in a queue", bubble(s.leasesOfWaiting)},
		{"lost leases", bubble(s.lostLeases)},
		{"degrades the handler", s.degradesTheHandler},
		{"waits for room", bubble(s.waitsForRoom)},
		{"client leaves while its request waits", bubble(s.leavesWhileWaiting)},
		{"throttle rate", s.throttleRate},
		{"throttled bodies", s.throttledBodies},
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

// one returns a router with one route, GET /.
func (s suite) one(limiter *limit.Limiter, h http.Handler, rules ...limit.RuleSet) Router {
	router := s.framework(limiter)
	router.Handle("GET", "/", h, rules...)
	return router
}

// bubble returns a test on a clock of its own.
func bubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// ok answers with a status that frameworks do not answer with by themselves.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// counting answers as ok does, and counts the requests that it gets.
func counting(n *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*n++
		ok(w, r)
	})
}

// receive returns the next value of c. After a minute without one, it fails the test: otherwise
// go test would hang until its own timeout and not name the test.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing has come in a minute")
	}
	return v
}

// hijacking answers on the connection of its request.
func hijacking(t *testing.T, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			defer conn.Close()
			rw.WriteString(answer)
			rw.Flush()
		}
	}
}

// A client sends requests to one server. Its connections are its own: the end of any
// httptest.Server closes those of http.DefaultClient.
type client struct {
	t    *testing.T
	base string
	http *http.Client
}

func serve(t *testing.T, h http.Handler) client {
	t.Helper()
	return clientOf(t, start(t, h, false))
}

func clientOf(t *testing.T, server *httptest.Server) client {
	c := server.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client{t, server.URL, c}
}

// start starts a server of HTTP/1.1, or of HTTP/2.
func start(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// expect sends a request once for each status, and requires these statuses.
func (c client) expect(method, path string, statuses ...int) {
	c.t.Helper()
	for i, status := range statuses {
		a := c.send(method, path)
		require.Equal(c.t, status, a.StatusCode, "%s %s, request %d: %s", method, path, i+1, a.body)
	}
}

// An answer is a response with its body read.
type answer struct {
	*http.Response
	body string
}

// send sends a request with headers given as name, value, name, value.
func (c client) send(method, path string, headers ...string) answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), method, path, nil, headers...)
	require.NoError(c.t, err)
	return a
}

// try is send, but for a request with a body that may fail.
func (c client) try(ctx context.Context, method, path string, body io.Reader, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response, string(text)}, err
}
