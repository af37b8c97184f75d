package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
)

// Throttle returns middleware that slows the bodies of responses or requests to
// the bytes that rules allow, as limit.Limiter.Throttle does. It panics if the
// rules are invalid. Options may be nil.
func (l *Limiter) Throttle(rules limit.RuleSet, options *limit.ThrottleOptions) echo.MiddlewareFunc {
	bind, user := l.limiter.Throttler, l.User
	if user != nil {
		bind = l.limiter.ThrottlerWithUser
	}
	throttler, err := bind(rules, options)
	if err != nil {
		panic(err)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			w, r := throttler.Slow(c.Response().Writer, call(c, user))
			c.Response().Writer = w
			c.SetRequest(r)
			return next(c)
		}
	}
}

// call returns a request as package limit sees it.
func call(c echo.Context, user func(echo.Context) string) limit.Call {
	call := limit.Call{Request: c.Request(), Method: c.Request().Method, Pattern: c.Path(),
		PathValue: func(name string) string { return pathValue(c, name) }}
	if user != nil {
		call.User = func() string { return user(c) }
	}
	return call
}
