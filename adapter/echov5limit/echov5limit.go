// Package echov5limit limits the routes of an Echo v5 server by the rules of package limit:
//
//	limiter := limit.New(nil, nil)
//	rl := echov5limit.New(limiter)
//	server.POST("/update", handler, rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))))
//
// A refused request is an error, which Echo's HTTPErrorHandler answers. The package does not use
// c.RealIP, which depends on Echo's IPExtractor: see limit.Options.Proxies. For Echo v4, see
// package echolimit.
package echov5limit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/echoflow"
	"github.com/routelimit/limit/throttle"
)

// A Limiter makes Echo middleware from rules. Make it with [New], and set its fields before the
// first call of Limit.
type Limiter struct {
	// Caller says who sends a request: what authentication, which must run first, has
	// put into the context. A function that is nil means that of limit.Options.Caller.
	Caller limit.Caller[*echo.Context]

	// Refuse answers a refused request, after the headers are set; the status is 429, 403 if the
	// client is barred, or 503 during an outage, unless it sets another. Its error is that of the
	// middleware. Nil means limit.Options.Refuse, or else an error that has that status for
	// [echo.StatusCode] and wraps a [*limit.RefusedError].
	Refuse func(*echo.Context, limit.Decision) error

	// Fail answers a request that could not be decided; the status is 503 unless
	// it sets another. Nil means limit.Options.Fail, or else an error that has the
	// status 503 for [echo.StatusCode] and wraps limit.ErrUndecided.
	Fail func(*echo.Context, error) error

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter {
	if limiter == nil {
		panic("echov5limit: the limiter is nil: write echov5limit.New(limit.New(nil, nil))")
	}
	return &Limiter{limiter: limiter}
}

// Limit returns middleware that lets through the requests that rules admit, and returns the error
// of [adapter.Adapter.Serve] for the others. It panics if the rules are invalid.
//
// On a group or the server, write limit.Named for one quota of all its routes, or limit.EachRoute
// for a quota of each. On the server it stands in Use, and not in Pre, which runs before there is a
// route.
func (l *Limiter) Limit(rules limit.RuleSet) echo.MiddlewareFunc {
	return l.flow().Limit(rules)
}

// Throttle returns middleware that slows the bodies of responses or requests to the bytes that
// rules allow: see package throttle. It panics if the rules are invalid. Options may be nil.
func (l *Limiter) Throttle(rules limit.RuleSet, options *throttle.Options) echo.MiddlewareFunc {
	return l.flow().Throttle(rules, options)
}

type flow = echoflow.Flow[*echo.Context, echo.HandlerFunc, echo.MiddlewareFunc]

func (l *Limiter) flow() *flow {
	return &flow{
		Limiter:  l.limiter,
		Writer:   func(c *echo.Context) http.ResponseWriter { return c.Response() },
		Response: response,
		Problem:  newProblem,
		Caller:   l.Caller,
		Refuse:   l.Refuse,
		Fail:     l.Fail,
	}
}

func response(w http.ResponseWriter) (echoflow.Response, bool) {
	r, ok := w.(*echo.Response)
	if !ok {
		return echoflow.Response{}, false
	}
	return echoflow.Response{Echo: r, Below: &r.ResponseWriter, Status: &r.Status, Committed: &r.Committed}, true
}

// A problem is an error that Echo's own HTTPErrorHandler writes as it is, because it
// marshals itself.
type problem struct {
	error
	echoflow.Document
}

func newProblem(d echoflow.Document, err error) error { return &problem{err, d} }

func (p *problem) Unwrap() error { return p.error }

// StatusCode implements [echo.HTTPStatusCoder].
func (p *problem) StatusCode() int { return p.Status }

// A Router is what routes are mounted on: an [*echo.Echo] or [*echo.Group].
type Router interface {
	Add(method, path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) echo.RouteInfo
}

// Mount registers the handlers in the fields of a struct, by their tags:
//
//	type API struct {
//		Update echo.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//	}
//
// The paths are Echo's. See [limit.Limiter.Mount] for the tags. If anything is wrong with the
// struct, Mount returns an error that lists all of it, and registers nothing.
func (l *Limiter) Mount(router Router, api any) error {
	_, whole := router.(*echo.Echo)
	return l.flow().Mount(api, whole, func(method, path string, h echo.HandlerFunc, limits ...echo.MiddlewareFunc) {
		router.Add(method, path, h, limits...)
	})
}
