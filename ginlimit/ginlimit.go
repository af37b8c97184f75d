// Package ginlimit limits the routes of a Gin engine by the rules of package limit:
//
//	limiter := limit.New(nil, nil)
//	rl := ginlimit.New(limiter)
//	router.POST("/update", rl.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))), handler)
//
// The package does not use c.ClientIP, which by default believes what clients
// write in X-Forwarded-For: see limit.Options.Proxies.
//
// In a handler, limit.DecisionFrom(c.Request.Context()) returns the decision.
package ginlimit

import (
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/internal/patterns"
	"github.com/routelimit/limit/throttle"
)

// A Limiter makes Gin middleware from rules. Make it with [New], and set its fields before the
// first call of Limit.
type Limiter struct {
	// Caller says who sends a request: what authentication, which must run first, has
	// put into the context. A function that is nil means that of limit.Options.Caller.
	Caller limit.Caller[*gin.Context]

	// Refuse answers a refused request, after the headers are set; the status is 429, 403 if the
	// client is barred, or 503 during an outage, unless it sets another. Nil means
	// limit.Options.Refuse.
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

// Limit returns middleware that lets through the requests that rules admit, and aborts the others
// with the error of [adapter.Adapter.Serve] in c.Errors. It panics if the rules are invalid.
//
// On a group or the engine, write limit.Named for one quota of all its routes, or
// limit.EachRoute for a quota of each.
func (l *Limiter) Limit(rules limit.RuleSet) gin.HandlerFunc {
	h, err := l.handler("", rules)
	if err != nil {
		panic(err)
	}
	return h
}

func (l *Limiter) handler(pattern string, rules limit.RuleSet) (gin.HandlerFunc, error) {
	a := l.adapter()
	policy, err := a.Bind(l.limiter, pattern, rules)
	return func(c *gin.Context) {
		if err := a.Serve(policy, c.Writer, c.Request, c); err != nil {
			// As c.Error does, which searches err for a *gin.Error first.
			c.Errors = append(c.Errors, &gin.Error{Err: err, Type: gin.ErrorTypePrivate})
			c.Abort()
		}
	}, err
}

func (l *Limiter) adapter() *adapter.Adapter[*gin.Context] {
	a := &adapter.Adapter[*gin.Context]{
		Route:     func(c *gin.Context) (string, string) { return c.Request.Method, c.FullPath() },
		PathValue: pathValue,
		Caller:    l.Caller,
		Next: func(c *gin.Context, r *http.Request) (int, error) {
			c.Request = r
			c.Next()
			if !c.Writer.Written() && c.Writer.Status() >= http.StatusOK { // an informational one ends nothing
				return 0, nil // Gin, or middleware outside, writes it
			}
			return c.Writer.Status(), nil
		},
		Record:    record,
		SetStatus: (*gin.Context).Status,
	}
	if l.Refuse != nil {
		a.Refuse = func(c *gin.Context, d limit.Decision) error {
			l.Refuse(c, d)
			return nil
		}
	}
	if l.Fail != nil {
		a.Fail = func(c *gin.Context, err error) error {
			l.Fail(c, err)
			return nil
		}
	}
	return a
}

func pathValue(c *gin.Context, name string) string {
	v := c.Param(name)
	if strings.Contains(v, "%") && encoded(c) {
		return patterns.Decoded(v)
	}
	return v
}

// encoded reports whether the parameters are as they were written, which depends on settings of the
// engine that a context does not show. The path of the route, with the parameters in it, is then
// the encoded path.
func encoded(c *gin.Context) bool {
	var b strings.Builder
	rest := c.FullPath()
	for _, p := range c.Params {
		i := strings.IndexAny(rest, ":*")
		if i < 0 {
			break
		}
		before, after := rest[:i], rest[i:]
		if after[0] == '*' {
			before = before[:i-1] // the value begins with the slash
		}
		b.WriteString(before + p.Value)
		rest = after[strings.IndexByte(after+"/", '/'):]
	}
	b.WriteString(rest)
	for _, path := range []string{c.Request.URL.EscapedPath(), c.Request.URL.RawPath} { // which differ if a byte was not encoded
		if path != "" && (b.String() == path || b.String() == patterns.Clean(path)) { // for RemoveExtraSlash
			return true
		}
	}
	return false
}

// Mount registers the handlers in the fields of a struct, by their tags:
//
//	type API struct {
//		Update gin.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//	}
//
// The paths are Gin's. See [limit.Limiter.Mount] for the tags. If anything is wrong with the
// struct, Mount returns an error that lists all of it, and registers nothing. It panics if Gin
// rejects a route, as router.Handle does.
func (l *Limiter) Mount(router gin.IRouter, api any) error {
	prefix := ""
	if group, ok := router.(interface{ BasePath() string }); ok {
		prefix = strings.TrimSuffix(group.BasePath(), "/")
	}
	return adapter.Mount(l.limiter, api, func(path string, rules limit.RuleSet) (gin.HandlerFunc, error) {
		return l.handler(prefix+path, rules)
	}, func(method, path string, h gin.HandlerFunc, limits ...gin.HandlerFunc) {
		router.Handle(method, path, append(limits, h)...)
	})
}

// Throttle returns middleware that slows the bodies of responses or requests to the bytes that
// rules allow: see package throttle. It panics if the rules are invalid. Options may be nil.
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
