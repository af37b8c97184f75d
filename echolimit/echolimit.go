// Package echolimit limits the routes of an Echo v4 server by the rules of
// package limit:
//
//	limiter := limit.New(nil, nil)
//	rl := echolimit.New(limiter)
//	server.POST("/update", handler, rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))))
//
// A refused request is an error, which Echo's HTTPErrorHandler answers. The
// package does not use c.RealIP, which by default believes what clients write in
// X-Forwarded-For: see limit.Options.Proxies.
package echolimit

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
)

// A Limiter makes Echo middleware from rules. Make it with [New], and set its
// fields before the first call of Limit.
type Limiter struct {
	// User returns the user of a request, for limit.ByUser: what authentication,
	// which must run first, has put into the context. "" means that the request
	// has no user. Nil means limit.Options.User.
	User func(echo.Context) string

	// Refuse answers a refused request, after the headers are set; the status is
	// 429 unless it sets another. Its error is that of the middleware. Nil means
	// limit.Options.Refuse, or else an [*echo.HTTPError] that wraps a
	// [*limit.RefusedError].
	Refuse func(echo.Context, limit.Decision) error

	// Fail answers a request that could not be decided; the status is 503 unless
	// it sets another. Nil means limit.Options.Fail, or else an [*echo.HTTPError]
	// that wraps the error.
	Fail func(echo.Context, error) error

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter {
	if limiter == nil {
		panic("echolimit: the limiter is nil: write echolimit.New(limit.New(nil, nil))")
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
		return func(c echo.Context) error {
			err := policy.Serve(c.Response(), c.Request(), l.call(c, next))
			if c.Response().Committed && (errors.As(err, new(*limit.RefusedError)) || errors.Is(err, limit.ErrUndecided)) {
				return nil // answered by limit.Options
			}
			return err
		}
	}
}

// call returns a request as package limit sees it. The context is nil where a
// route is declared.
func (l *Limiter) call(c echo.Context, next echo.HandlerFunc) limit.Call {
	call := limit.Call{
		PathValue: func(name string) string { return pathValue(c, name) },
		Next: func(r *http.Request) (int, error) {
			c.SetRequest(r)
			err := next(c)
			return status(c, err), err
		},
		Status: func() int {
			if !c.Response().Committed {
				return 0
			}
			return c.Response().Status
		},
		Answer: func(err error) error { return problem(c, err) },
	}
	if c != nil {
		call.Method, call.Pattern = c.Request().Method, c.Path()
	}
	if l.User != nil {
		call.User = func() string { return l.User(c) }
	}
	if l.Refuse != nil {
		call.Refuse = func(d limit.Decision) error {
			c.Response().Status, _ = limit.Problem(&limit.RefusedError{Decision: d})
			return begin(c, l.Refuse(c, d))
		}
	}
	if l.Fail != nil {
		call.Fail = func(err error) error {
			c.Response().Status = http.StatusServiceUnavailable
			return begin(c, l.Fail(c, err))
		}
	}
	return call
}
