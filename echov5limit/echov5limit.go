// Package echov5limit limits the routes of an Echo v5 server by the rules of
// package limit:
//
//	limiter := limit.New(nil, nil)
//	rl := echov5limit.New(limiter)
//	server.POST("/update", handler, rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))))
//
// A refused request is an error, which Echo's HTTPErrorHandler answers. The
// package does not use c.RealIP, which depends on Echo's IPExtractor: see
// limit.Options.Proxies. For Echo v4, see package echolimit.
package echov5limit

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/routelimit/limit"
)

// A Limiter makes Echo middleware from rules. Make it with [New], and set its
// fields before the first call of Limit.
type Limiter struct {
	// User returns the user of a request, for limit.ByUser: what authentication,
	// which must run first, has put into the context. "" means that the request
	// has no user. Nil means limit.Options.User.
	User func(*echo.Context) string

	// Refuse answers a refused request, after the headers are set; the status is
	// 429 unless it sets another. Its error is that of the middleware. Nil means
	// limit.Options.Refuse, or else an error that has the status 429 for
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

// Limit returns middleware that lets through the requests that rules admit, and
// returns the error of [limit.Policy.Serve] for the others. It panics if the rules
// are invalid.
//
// On a group or the server, write limit.Named for one quota of all its routes, or
// limit.EachRoute for a quota of each. On the server it stands in Use, and not in
// Pre, which runs before there is a route.
func (l *Limiter) Limit(rules limit.RuleSet) echo.MiddlewareFunc {
	policy, err := l.limiter.Bind(rules, l.call(nil, nil))
	if err != nil {
		panic(err)
	}
	return l.middleware(policy)
}

func (l *Limiter) middleware(policy *limit.Policy) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := policy.Serve(c.Response(), c.Request(), l.call(c, next))
			if committed(c) && (errors.As(err, new(*limit.RefusedError)) || errors.Is(err, limit.ErrUndecided)) {
				return nil // answered by limit.Options
			}
			return err
		}
	}
}

// call returns a request as package limit sees it. The context is nil where a
// route is declared.
func (l *Limiter) call(c *echo.Context, next echo.HandlerFunc) limit.Call {
	call := limit.Call{
		PathValue: func(name string) string { return pathValue(c, name) },
		Next: func(r *http.Request) (int, error) {
			c.SetRequest(r)
			err := next(c)
			_, status := echo.ResolveResponseStatus(c.Response(), err)
			return status, err
		},
		Status: func() int {
			if response, err := echo.UnwrapResponse(c.Response()); err == nil && response.Committed {
				return response.Status
			}
			return 0
		},
		Answer: func(err error) error { return answer(c, err) },
	}
	if c != nil {
		call.Method, call.Pattern = c.Request().Method, c.Path()
	}
	if l.User != nil {
		call.User = func() string { return l.User(c) }
	}
	if l.Refuse != nil {
		call.Refuse = func(d limit.Decision) error {
			status, _ := limit.Problem(&limit.RefusedError{Decision: d})
			return withStatus(c, status, func() error { return l.Refuse(c, d) })
		}
	}
	if l.Fail != nil {
		call.Fail = func(err error) error {
			return withStatus(c, http.StatusServiceUnavailable, func() error { return l.Fail(c, err) })
		}
	}
	return call
}
