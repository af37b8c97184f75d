package ginlimit

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
)

// Throttle returns middleware that slows the bodies of responses or requests to
// the bytes that rules allow, as limit.Limiter.Throttle does. It panics if the
// rules are invalid. Options may be nil.
func (l *Limiter) Throttle(rules limit.RuleSet, options *limit.ThrottleOptions) gin.HandlerFunc {
	bind, user := l.limiter.Throttler, l.User
	if user != nil {
		bind = l.limiter.ThrottlerWithUser
	}
	throttler, err := bind(rules, options)
	if err != nil {
		panic(err)
	}
	return func(c *gin.Context) {
		slowed, r := throttler.Slow(c.Writer, call(c, user))
		c.Request = r
		if slowed != http.ResponseWriter(c.Writer) {
			c.Writer = &writer{c.Writer, slowed}
		}
	}
}

// call returns a request as package limit sees it.
func call(c *gin.Context, user func(*gin.Context) string) limit.Call {
	call := limit.Call{Request: c.Request, Method: c.Request.Method, Pattern: c.FullPath(), PathValue: c.Param}
	if user != nil {
		call.User = func() string { return user(c) }
	}
	return call
}

// A writer is Gin's, but what it writes goes through another one around it.
type writer struct {
	gin.ResponseWriter
	slowed http.ResponseWriter
}

func (w *writer) Write(p []byte) (int, error) { return w.slowed.Write(p) }

func (w *writer) WriteString(s string) (int, error) { return io.WriteString(w.slowed, s) }

// Unwrap is for http.ResponseController, and leads to the slowed one.
func (w *writer) Unwrap() http.ResponseWriter { return w.slowed }
