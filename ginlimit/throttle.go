package ginlimit

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// Throttle returns middleware that slows the bodies of responses or requests to
// the bytes that rules allow: see package throttle. It panics if the rules are
// invalid. Options may be nil.
func (l *Limiter) Throttle(rules limit.RuleSet, options *throttle.Options) gin.HandlerFunc {
	slow, err := throttle.Bind(l.limiter, l.adapter(), rules, options)
	if err != nil {
		panic(err)
	}
	return func(c *gin.Context) {
		slowed, r := slow(c.Writer, c.Request, c)
		c.Request = r
		if slowed != http.ResponseWriter(c.Writer) {
			c.Writer = &writer{c.Writer, slowed}
		}
	}
}

// A writer is Gin's, but writes through another one around it.
type writer struct {
	gin.ResponseWriter
	slowed http.ResponseWriter
}

func (w *writer) Write(p []byte) (int, error) { return w.slowed.Write(p) }

func (w *writer) WriteString(s string) (int, error) { return io.WriteString(w.slowed, s) }

// Unwrap is for http.ResponseController, and leads to the slowed writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.slowed }
