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
	t, err := throttle.New(l.limiter, rules, options)
	if err == nil {
		err = t.Check(l.call(nil, nil))
	}
	if err != nil {
		panic(err)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			w, r := t.Slow(c.Response().Writer, c.Request(), l.call(c, next))
			c.Response().Writer = w
			c.SetRequest(r)
			return next(c)
		}
	}
}
