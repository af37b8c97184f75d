// Package echolimit limits the routes of an Echo v4 server by the rules of
// package limit:
//
//	limiter := limit.New(nil, nil)
//	rl := echolimit.New(limiter)
//	server.POST("/update", handler, rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))))
//
// A refused request is an error, which Echo's HTTPErrorHandler answers. The
// package does not use c.RealIP, which by default believes what clients write
// in X-Forwarded-For: see limit.Options.Proxies.
package echolimit

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
)

// A Limiter makes Echo middleware from rules. Make it with [New].
type Limiter struct {
	// User returns the user of a request, for limit.ByUser: what the
	// authentication before it has put into the context. "" means that there
	// is none. Set it before the first call of Limit; nil means
	// limit.Options.User.
	User func(echo.Context) string

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter { return &Limiter{limiter: limiter} }

// Limit returns middleware for a route, a group or the server (Use, not Pre,
// which runs before there is a route), that lets through what rules admit. It
// panics if the rules are invalid. Behind a limit.Queue a request goes on when
// its turn comes, or never if its client goes away before: then the error wraps
// that of its context. What it holds under limit.Concurrency is released when
// next returns or panics.
//
// Unless the rules are limit.Named, each route (method and path pattern) is a
// policy of its own, and all requests that match no route share one.
//
// The error of a refused request is an [*echo.HTTPError] that wraps a
// [*limit.RefusedError]; that of an undecided one wraps [*limit.UndecidedError].
func (l *Limiter) Limit(rules limit.RuleSet) echo.MiddlewareFunc {
	mw, err := l.middleware(rules)
	if err != nil {
		panic(err)
	}
	return mw
}

func (l *Limiter) middleware(rules limit.RuleSet) (echo.MiddlewareFunc, error) {
	bind, user := l.limiter.Policy, l.User
	if user != nil {
		bind = l.limiter.PolicyWithUser
	}
	policy, err := bind(rules)
	if err != nil {
		return nil, err
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			d, err := policy.Decide(call(c, user))
			status := http.StatusInternalServerError // that of a panic
			defer func() { d.Done(c.Request(), status) }()
			limit.SetHeaders(c.Response().Header(), d)
			switch {
			case err != nil:
				return undecided(c, err)
			case d.Allowed:
				if err := d.Wait(c.Request().Context()); err != nil {
					return gone(err)
				}
				c.SetRequest(d.Request(c.Request()))
				err := next(c)
				status = statusOf(c, err)
				return err
			case policy.Refuse() != nil:
				policy.Refuse()(c.Response(), c.Request(), d)
				return nil
			}
			return refused(c, d)
		}
	}, nil
}

// statusOf returns the status of a request that a handler has answered, or that
// the error handler of the server will answer, if it goes by the codes of errors
// as Echo's own does.
func statusOf(c echo.Context, err error) int {
	if err == nil || c.Response().Committed {
		return c.Response().Status
	}
	if failed := (*echo.HTTPError)(nil); errors.As(err, &failed) {
		return failed.Code
	}
	return http.StatusInternalServerError
}

// pathValue returns a parameter as the request means it. Echo hands it out as
// it was written, in which "a" and "%61" would have a quota each.
func pathValue(c echo.Context, name string) string {
	v := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}
