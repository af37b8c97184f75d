// Package ginlimit limits the routes of a Gin engine by the rules of package
// limit:
//
//	limiter := limit.New(nil, nil)
//	rl := ginlimit.New(limiter)
//	router.POST("/update", rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))), handler)
//
// A refused request is answered here, with the refusal in c.Errors for the
// middleware around. The package does not use c.ClientIP, which by default
// believes what clients write in X-Forwarded-For: see limit.Options.Proxies.
package ginlimit

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
)

// statusGone is what logs show of a request whose client went away before its
// turn came; nobody reads the answer.
const statusGone = 499

// A Limiter makes Gin middleware from rules. Make it with [New].
type Limiter struct {
	// User returns the user of a request, for limit.ByUser: what the
	// authentication before it has put into the context. "" means that there
	// is none. Set it before the first call of Limit; nil means
	// limit.Options.User.
	User func(*gin.Context) string

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter { return &Limiter{limiter: limiter} }

// Limit returns middleware for a route, a group or the engine, that lets
// through what rules admit. It panics if the rules are invalid. Behind a
// limit.Queue a request goes on when its turn comes, or never if its client goes
// away before. What it holds under limit.Concurrency is released when the
// handlers behind have returned, or one of them panics.
//
// Unless the rules are limit.Named, each route (method and path pattern) is a
// policy of its own, and all requests that match no route share one.
func (l *Limiter) Limit(rules limit.RuleSet) gin.HandlerFunc {
	h, err := l.middleware(rules)
	if err != nil {
		panic(err)
	}
	return h
}

func (l *Limiter) middleware(rules limit.RuleSet) (gin.HandlerFunc, error) {
	bind, user := l.limiter.Policy, l.User
	if user != nil {
		bind = l.limiter.PolicyWithUser
	}
	policy, err := bind(rules)
	if err != nil {
		return nil, err
	}
	ends := slices.ContainsFunc(rules.Rules(), func(r limit.Rule) bool {
		return r.Algorithm == limit.Concurrency || r.Settle != nil
	})
	return func(c *gin.Context) {
		d, err := policy.Decide(call(c, user))
		status := http.StatusInternalServerError // that of a panic
		if ends {
			defer func() { d.Done(c.Request, status) }()
		}
		limit.SetHeaders(c.Writer.Header(), d)
		if err == nil && d.Allowed {
			if err := d.Wait(c.Request.Context()); err != nil {
				c.Error(err)
				c.AbortWithStatus(statusGone)
				return
			}
			if ends {
				c.Request = d.Request(c.Request)
				c.Next() // to know when the handler has returned
				status = c.Writer.Status()
			}
			return
		}
		c.Abort()
		answer(c, policy, d, err)
	}, nil
}

// answer answers a request that may not go on.
func answer(c *gin.Context, policy *limit.Policy, d limit.Decision, err error) {
	if err != nil {
		undecided := &limit.UndecidedError{Err: err}
		c.Error(undecided)
		undecided.ServeHTTP(c.Writer, c.Request)
		return
	}
	refused := &limit.RefusedError{Decision: d}
	c.Error(refused)
	if refuse := policy.Refuse(); refuse != nil {
		refuse(c.Writer, c.Request, d)
		return
	}
	refused.ServeHTTP(c.Writer, c.Request)
}
