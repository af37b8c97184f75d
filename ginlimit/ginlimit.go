// Package ginlimit limits the routes of a Gin engine by the rules of package
// limit:
//
//	limiter := limit.New(nil, nil)
//	rl := ginlimit.New(limiter)
//	router.POST("/update", rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))), handler)
//
// The package does not use c.ClientIP, which by default believes what clients
// write in X-Forwarded-For: see limit.Options.Proxies.
package ginlimit

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
)

// A Limiter makes Gin middleware from rules. Make it with [New], and set its
// fields before the first call of Limit.
type Limiter struct {
	// User returns the user of a request, for limit.ByUser: what authentication,
	// which must run first, has put into the context. "" means that the request
	// has no user. Nil means limit.Options.User.
	User func(*gin.Context) string

	// Refuse answers a refused request, after the headers are set; the status is
	// 429 unless it sets another. Nil means limit.Options.Refuse.
	Refuse func(*gin.Context, limit.Decision)

	// Fail answers a request that could not be decided; the status is 503 unless
	// it sets another. Nil means limit.Options.Fail.
	Fail func(*gin.Context, error)

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter {
	if limiter == nil {
		panic("ginlimit: the limiter is nil: write ginlimit.New(limit.New(nil, nil))")
	}
	return &Limiter{limiter: limiter}
}

// Limit returns middleware that lets through the requests that rules admit, and
// aborts the others with the error of [limit.Policy.Serve] in c.Errors. It panics
// if the rules are invalid.
//
// On a group or the engine, write limit.Named for one quota of all its routes, or
// limit.EachRoute for a quota of each.
func (l *Limiter) Limit(rules limit.RuleSet) gin.HandlerFunc {
	policy, err := l.limiter.Bind(rules, l.call(nil))
	if err != nil {
		panic(err)
	}
	return l.handler(policy)
}

func (l *Limiter) handler(policy *limit.Policy) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := policy.Serve(c.Writer, c.Request, l.call(c)); err != nil {
			_ = c.Error(err)
			c.Abort()
		}
	}
}

// call returns a request as package limit sees it. The context is nil where a
// route is declared.
func (l *Limiter) call(c *gin.Context) limit.Call {
	var call limit.Call
	if c != nil {
		call.Method, call.Pattern, call.PathValue = c.Request.Method, c.FullPath(), c.Param
		call.Next = func(r *http.Request) (int, error) {
			c.Request = r
			c.Next()
			return c.Writer.Status(), nil
		}
		call.Status = func() int {
			if !c.Writer.Written() {
				return 0
			}
			return c.Writer.Status()
		}
	}
	if l.User != nil {
		call.User = func() string { return l.User(c) }
	}
	if l.Refuse != nil {
		call.Refuse = func(d limit.Decision) error {
			refused := &limit.RefusedError{Decision: d}
			status, _ := limit.Problem(refused)
			c.Status(status)
			l.Refuse(c, d)
			return refused
		}
	}
	if l.Fail != nil {
		call.Fail = func(err error) error {
			c.Status(http.StatusServiceUnavailable)
			l.Fail(c, err)
			return err
		}
	}
	return call
}
