package echov5limit

import (
	"github.com/labstack/echo/v5"

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
		return func(c *echo.Context) error {
			response, err := echo.UnwrapResponse(c.Response())
			if err != nil {
				return err
			}
			// Below Echo's own writer, where the status that it keeps stays true.
			w, r := slow(response.ResponseWriter, c.Request(), call{c, next})
			response.ResponseWriter = w
			c.SetRequest(r)
			return next(c)
		}
	}
}
