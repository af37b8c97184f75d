package echov5limit_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	v4 "github.com/labstack/echo/v4"
	v4middleware "github.com/labstack/echo/v4/middleware"
	v5 "github.com/labstack/echo/v5"
	v5middleware "github.com/labstack/echo/v5/middleware"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/echov5limit"
	"github.com/routelimit/limit/echolimit"
)

// The tests of this package run on both versions of Echo, with echolimit and
// echov5limit.
func each(t *testing.T, test func(*testing.T, version)) {
	t.Run("v4", func(t *testing.T) { test(t, version4) })
	t.Run("v5", func(t *testing.T) { test(t, version5) })
}

// An echoContext is that of either version.
type echoContext interface {
	Request() *http.Request
	Get(string) any
	Set(string, any)
	JSON(int, any) error
	HTML(int, string) error
	String(int, string) error
	NoContent(int) error
}

type (
	handler    = func(echoContext) error
	middleware = func(next handler) handler
)

// hooks are the fields of a Limiter.
type hooks struct {
	user   func(echoContext) string
	refuse func(echoContext, limit.Decision) error
	fail   func(echoContext, error) error
}

// A server is an Echo server of either version.
type server interface {
	http.Handler
	pre(middleware)
	use(...middleware)
	get(path string, h handler, m ...middleware)
	group(prefix string, m middleware) (get func(path string, h handler))
	onError(func(echoContext, error)) // the HTTPErrorHandler
	debug()                           // shows errors to clients
}

// A version is what the tests know of a version.
type version struct {
	server    func() server
	limiter   func(*limit.Limiter, hooks) func(limit.RuleSet) middleware
	httpError func(code int, text string) error

	status  func(error) (status int, body any) // of an error of Echo
	logged  string                             // before the text of an error of the limiter
	byEcho  func(echoContext, error)           // Echo's own HTTPErrorHandler
	writer  func(echoContext) http.ResponseWriter
	below   func(echoContext) *http.ResponseWriter // the writer below Echo's
	started func(echoContext) bool

	gzip, dump, recovery, timeout, wrapped middleware
	wrap                                   func(func(http.Handler) http.Handler) middleware
}

// limit returns middleware of a new limiter in memory.
func (v version) limit(rules limit.RuleSet) middleware {
	return v.limiter(limit.New(nil, nil), hooks{})(rules)
}

func same(next http.Handler) http.Handler { return next }

var version4 = version{
	server: func() server {
		e := v4.New()
		e.Logger.SetOutput(io.Discard)
		return server4{e}
	},
	limiter: func(l *limit.Limiter, h hooks) func(limit.RuleSet) middleware {
		rl := echolimit.New(l)
		if h.user != nil {
			rl.Caller.User = func(c v4.Context) string { return h.user(c) }
		}
		if h.refuse != nil {
			rl.Refuse = func(c v4.Context, d limit.Decision) error { return h.refuse(c, d) }
		}
		if h.fail != nil {
			rl.Fail = func(c v4.Context, err error) error { return h.fail(c, err) }
		}
		return func(rules limit.RuleSet) middleware { return of4(rl.Limit(rules)) }
	},
	httpError: func(code int, text string) error { return v4.NewHTTPError(code, text) },
	status: func(err error) (int, any) {
		var he *v4.HTTPError
		errors.As(err, &he)
		return he.Code, he.Message
	},
	logged:   "code=429, message=Too Many Requests, internal=",
	byEcho:   func(c echoContext, err error) { c.(v4.Context).Echo().DefaultHTTPErrorHandler(err, c.(v4.Context)) },
	writer:   func(c echoContext) http.ResponseWriter { return c.(v4.Context).Response() },
	below:    func(c echoContext) *http.ResponseWriter { return &c.(v4.Context).Response().Writer },
	started:  func(c echoContext) bool { return c.(v4.Context).Response().Committed },
	gzip:     of4(v4middleware.Gzip()),
	dump:     of4(v4middleware.BodyDump(func(v4.Context, []byte, []byte) {})),
	recovery: of4(v4middleware.RecoverWithConfig(v4middleware.RecoverConfig{DisablePrintStack: true})),
	timeout:  of4(v4middleware.ContextTimeout(time.Hour)),
	wrapped:  of4(v4.WrapMiddleware(same)),
	wrap:     func(m func(http.Handler) http.Handler) middleware { return of4(v4.WrapMiddleware(m)) },
}

// of4 and to4 return middleware of the tests and of Echo v4 as the other.
func of4(m v4.MiddlewareFunc) middleware {
	return func(next handler) handler {
		h := m(handler4(next))
		return func(c echoContext) error { return h(c.(v4.Context)) }
	}
}

func to4(m middleware) v4.MiddlewareFunc {
	return func(next v4.HandlerFunc) v4.HandlerFunc {
		return handler4(m(func(c echoContext) error { return next(c.(v4.Context)) }))
	}
}

func handler4(h handler) v4.HandlerFunc { return func(c v4.Context) error { return h(c) } }

type server4 struct{ *v4.Echo }

func (s server4) pre(m middleware)    { s.Echo.Pre(to4(m)) }
func (s server4) use(m ...middleware) { s.Echo.Use(all(to4, m)...) }
func (s server4) debug()              { s.Echo.Debug = true }

func (s server4) get(path string, h handler, m ...middleware) {
	s.Echo.GET(path, handler4(h), all(to4, m)...)
}

func (s server4) group(prefix string, m middleware) func(string, handler) {
	g := s.Echo.Group(prefix, to4(m))
	return func(path string, h handler) { g.GET(path, handler4(h)) }
}

func (s server4) onError(answer func(echoContext, error)) {
	s.HTTPErrorHandler = func(err error, c v4.Context) { answer(c, err) }
}

var version5 = version{
	server: func() server {
		e := v5.New()
		e.Logger = slog.New(slog.DiscardHandler)
		return server5{e}
	},
	limiter: func(l *limit.Limiter, h hooks) func(limit.RuleSet) middleware {
		rl := echov5limit.New(l)
		if h.user != nil {
			rl.Caller.User = func(c *v5.Context) string { return h.user(c) }
		}
		if h.refuse != nil {
			rl.Refuse = func(c *v5.Context, d limit.Decision) error { return h.refuse(c, d) }
		}
		if h.fail != nil {
			rl.Fail = func(c *v5.Context, err error) error { return h.fail(c, err) }
		}
		return func(rules limit.RuleSet) middleware { return of5(rl.Limit(rules)) }
	},
	httpError: func(code int, text string) error { return v5.NewHTTPError(code, text) },
	status:    func(err error) (int, any) { return v5.StatusCode(err), err },
	byEcho:    func(c echoContext, err error) { v5.DefaultHTTPErrorHandler(false)(c.(*v5.Context), err) },
	writer:    func(c echoContext) http.ResponseWriter { return c.(*v5.Context).Response() },
	below:     func(c echoContext) *http.ResponseWriter { return &response5(c).ResponseWriter },
	started:   func(c echoContext) bool { return response5(c).Committed },
	gzip:      of5(v5middleware.Gzip()),
	dump:      of5(v5middleware.BodyDump(func(*v5.Context, []byte, []byte, error) {})),
	recovery:  of5(v5middleware.RecoverWithConfig(v5middleware.RecoverConfig{DisablePrintStack: true})),
	timeout:   of5(v5middleware.ContextTimeout(time.Hour)),
	wrapped:   of5(v5.WrapMiddleware(same)),
	wrap:      func(m func(http.Handler) http.Handler) middleware { return of5(v5.WrapMiddleware(m)) },
}

func response5(c echoContext) *v5.Response {
	response, err := v5.UnwrapResponse(c.(*v5.Context).Response())
	if err != nil {
		panic(err)
	}
	return response
}

func of5(m v5.MiddlewareFunc) middleware {
	return func(next handler) handler {
		h := m(handler5(next))
		return func(c echoContext) error { return h(c.(*v5.Context)) }
	}
}

func to5(m middleware) v5.MiddlewareFunc {
	return func(next v5.HandlerFunc) v5.HandlerFunc {
		return handler5(m(func(c echoContext) error { return next(c.(*v5.Context)) }))
	}
}

func handler5(h handler) v5.HandlerFunc { return func(c *v5.Context) error { return h(c) } }

type server5 struct{ *v5.Echo }

func (s server5) pre(m middleware)    { s.Echo.Pre(to5(m)) }
func (s server5) use(m ...middleware) { s.Echo.Use(all(to5, m)...) }
func (s server5) debug()              { s.HTTPErrorHandler = v5.DefaultHTTPErrorHandler(true) }

func (s server5) get(path string, h handler, m ...middleware) {
	s.Echo.GET(path, handler5(h), all(to5, m)...)
}

func (s server5) group(prefix string, m middleware) func(string, handler) {
	g := s.Echo.Group(prefix, to5(m))
	return func(path string, h handler) { g.GET(path, handler5(h)) }
}

func (s server5) onError(answer func(echoContext, error)) {
	s.HTTPErrorHandler = func(c *v5.Context, err error) { answer(c, err) }
}

func all[M any](convert func(middleware) M, m []middleware) (converted []M) {
	for _, m := range m {
		converted = append(converted, convert(m))
	}
	return converted
}
