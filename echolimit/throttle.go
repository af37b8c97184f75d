package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// Throttle returns middleware that slows the bodies of responses or requests to
// the bytes that rules allow: see package throttle. It panics if the rules are
// invalid. Options may be nil.
func (l *Limiter) Throttle(rules limit.RuleSet, options *throttle.Options) echo.MiddlewareFunc {
	slow, err := throttle.Bind(l.limiter, l.adapter(), rules, options)
	if err != nil {
		panic(err)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			w, r := slow(c.Response().Writer, c.Request(), call{c, next})
			c.Response().Writer = w
			c.SetRequest(r)
			return next(c)
		}
	}
}
