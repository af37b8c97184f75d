package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/adapter/adaptertest"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/throttle"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode) // it would print among the outputs of examples
	engine.SettleTimeout = 30 * time.Second
	os.Exit(m.Run())
}

// mustPolicy binds rules in which nothing is wrong.
func mustPolicy(l *limit.Limiter, rules limit.RuleSet) *limit.Policy {
	p, err := l.Policy(rules)
	if err != nil {
		panic(err)
	}
	return p
}

// router is a ServeMux as the suite uses it.
type router struct {
	routes
	http.Handler
}

type routes struct {
	mux     *http.ServeMux
	limiter *limit.Limiter
	after   http.Handler
}

func newRouter(l *limit.Limiter) adaptertest.Router {
	mux := http.NewServeMux()
	return &router{routes{mux, l, nil}, mux}
}

func (r *router) Use(rules limit.RuleSet) {
	r.Handler = mustPolicy(r.limiter, rules).Handler(r.Handler)
}

func (r *router) After(answer http.Handler) { r.after = answer }

func (r *router) Group(prefix string, rules limit.RuleSet) adaptertest.Routes {
	below := http.NewServeMux()
	r.mux.Handle(prefix+"/", http.StripPrefix(prefix, mustPolicy(r.limiter, rules).Handler(below)))
	return routes{below, r.limiter, r.after}
}

func (r routes) Handle(method, path string, h http.Handler, rules ...limit.RuleSet) {
	for _, set := range slices.Backward(rules) { // the last is the innermost
		h = r.limiter.Limit(set)(h)
	}
	if r.after != nil {
		h = answeredAfter(h, r.after)
	}
	if path == "/" {
		path = "/{$}"
	}
	r.mux.Handle(method+" "+path, h)
}

func (r *router) Throttle(method, path string, h http.Handler, rules limit.RuleSet, options *throttle.Options) {
	r.mux.Handle(method+" "+path, throttle.Limit(r.limiter, rules, options)(h))
}

// begun is the writer of middleware that asks whether a handler has answered. Like most
// such writers it has no Unwrap.
type begun struct {
	http.ResponseWriter
	begun bool
}

func (w *begun) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *begun) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}

func answeredAfter(next, answer http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside := &begun{ResponseWriter: w}
		next.ServeHTTP(inside, r)
		if !inside.begun {
			answer.ServeHTTP(w, r)
		}
	})
}

func TestHandler(t *testing.T) { adaptertest.Run(t, newRouter) }

func FuzzRequest(f *testing.F) { adaptertest.Fuzz(f, newRouter) }

// TestDeclaration is the declaration of the documentation, word for word.
func TestDeclaration(t *testing.T) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()

	limiter := limit.New(nil, nil)
	mux.Handle("POST /update", limiter.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000)))(handler))

	server := httptest.NewServer(mux)
	defer server.Close()
	routetest.FiveInTwoSeconds(t, server.URL+"/update")
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// TestCostsOfRequests charges what requests cost. A negative cost neither runs the handler nor
// charges anything, and clients do not learn why.
func TestCostsOfRequests(t *testing.T) {
	book, ran := new(logbook.Book), 0
	var seen string
	h := limit.New(nil, &limit.Options{Log: book.Log(), Instances: 1, Observe: func(_ *http.Request, d limit.Decision, err error) {
		if seen = d.Outcome(); err != nil {
			assert.ErrorIs(t, err, limit.ErrUndecided)
			seen = err.Error()
		}
	}}).Limit(limit.Named("p", limit.Global(time.Hour, 100), limit.Rule{Name: "units", Key: limit.Everyone, Limit: 10, Window: time.Hour,
		Cost: rules.CostBy("units", func(r *http.Request) int64 {
			n, err := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
			assert.NoError(t, err)
			return n
		})}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
	const negative = `limit: could not decide: rule "units": cost %s: write 0 or more`
	for _, step := range []struct {
		cost                        string
		status                      int
		retryAfter, rateLimit, seen string
	}{
		{"7", 200, "", `"global-1h";r=99;t=3600, "units";r=3;t=3600`, "admitted"},
		{"4", 429, "3600", `"global-1h";r=99;t=3600, "units";r=3;t=3600`, "refused"},
		{"11", 429, "", `"global-1h";r=99;t=3600, "units";r=3`, "refused"},
		{"9223372036854775807", 429, "", `"global-1h";r=99;t=3600, "units";r=3`, "refused"},
		{"-1", 503, "1", "", fmt.Sprintf(negative, "-1")},
		{"-9223372036854775808", 503, "1", "", fmt.Sprintf(negative, "-9223372036854775808")},
		{"0", 200, "", `"global-1h";r=98;t=3600, "units";r=3;t=3600`, "admitted"},
		{"3", 200, "", `"global-1h";r=97;t=3600, "units";r=0;t=3600`, "admitted"},
	} {
		w := routetest.Do(h, "GET", "/", "X-Cost", step.cost)
		assert.Equal(t, step.status, w.Code, step.cost)
		assert.Equal(t, step.retryAfter, w.Header().Get("Retry-After"), step.cost)
		assert.Equal(t, step.rateLimit, strings.Join(w.Header().Values("RateLimit"), ", "), step.cost)
		assert.Equal(t, step.seen, seen, step.cost)
		assert.NotContains(t, w.Body.String(), "cost")
	}
	assert.Equal(t, 3, ran)
	lines := book.Lines()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "code="+notice.Undecided)
}

// TestNamedAcrossFrameworks spends one quota on three frameworks and outside
// HTTP.
func TestNamedAcrossFrameworks(t *testing.T) {
	limiter := limit.New(nil, nil)
	rules := limit.Named("exports", limit.PerIP(time.Hour, 4))

	engine := gin.New()
	engine.GET("/gin", ginlimit.New(limiter).Limit(rules), func(c *gin.Context) { c.Status(http.StatusNoContent) })
	server := echo.New()
	server.GET("/echo", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, echolimit.New(limiter).Limit(rules))
	mux := http.NewServeMux()
	mux.Handle("/gin", engine)
	mux.Handle("/echo", server)
	mux.Handle("/http", limiter.Limit(rules)(status(http.StatusNoContent)))

	for _, path := range []string{"/gin", "/echo", "/http"} {
		require.Equal(t, http.StatusNoContent, send(mux, "GET", path).Code, path)
	}
	// httptest.NewRequest comes from this address.
	d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.1:1234"}}))(t)
	require.True(t, d.Allowed)
	require.Zero(t, slices.Collect(d.Rules())[0].Remaining)
	for _, path := range []string{"/gin", "/echo", "/http"} {
		assert.Equal(t, http.StatusTooManyRequests, send(mux, "GET", path).Code, path)
	}
}

// TestNamedTwice checks that one name is one policy: other rules under it are
// refused, wherever they stand.
func TestNamedTwice(t *testing.T) {
	limiter := limit.New(nil, nil)
	limiter.Limit(limit.Named("api", limit.PerIP(time.Hour, 4)))(status(204))
	limiter.Limit(limit.Named("api", limit.PerIP(time.Hour, 4)))(status(204))
	ginlimit.New(limiter).Limit(limit.Named("api", limit.PerIP(time.Hour, 4)))

	settled := limit.PerIP(time.Hour, 4)
	settled.Settle = rules.OnStatus(http.StatusUnauthorized)
	_, err := limiter.Policy(limit.Named("api", settled))
	assert.ErrorContains(t, err, `policy "api": already has other rules`, "one settles, and one does not")

	other := limit.Named("api", limit.PerIP(time.Hour, 5))
	for name, declare := range map[string]func(){
		"net/http": func() { limiter.Limit(other)(status(204)) },
		"gin":      func() { ginlimit.New(limiter).Limit(other) },
		"echo":     func() { echolimit.New(limiter).Limit(other) },
	} {
		assert.PanicsWithError(t, `limit: policy "api": already has other rules (4/1h per ip, here 5/1h per ip): `+
			`declare the set once and share it, or choose another name`, declare, name)
	}
}

// TestScope checks which requests share a quota on net/http, whatever stands between
// the rules and the routes.
func TestScope(t *testing.T) {
	logging := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	two := limit.PerIP(time.Hour, 2)
	mux := func(wrap func(http.Handler) http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", wrap(status(204)))
		mux.Handle("GET /other", wrap(status(204)))
		return mux
	}
	plain := func(next http.Handler) http.Handler { return next }
	perRoute := []int{204, 204, 429, 204}
	shared := []int{204, 204, 429, 429}
	for name, test := range map[string]struct {
		h    func(*limit.Limiter) http.Handler
		want []int // of /items/1, /items/2, /items/3, /other
	}{
		"a set for each route": {func(l *limit.Limiter) http.Handler {
			return mux(func(next http.Handler) http.Handler { return l.Limit(limit.Rules(two))(next) })
		}, perRoute},
		"each route": {func(l *limit.Limiter) http.Handler { return mux(l.Limit(limit.EachRoute(two))) }, perRoute},
		"each route, behind a logger": {func(l *limit.Limiter) http.Handler {
			limited := l.Limit(limit.EachRoute(two))
			return logging(mux(func(next http.Handler) http.Handler { return logging(limited(logging(next))) }))
		}, perRoute},
		"named on routes": {func(l *limit.Limiter) http.Handler { return mux(l.Limit(limit.Named("all", two))) }, shared},
		"named around the mux": {func(l *limit.Limiter) http.Handler {
			return mustPolicy(l, limit.Named("all", two)).Handler(mux(plain))
		}, shared},
		"named around a logger": {func(l *limit.Limiter) http.Handler {
			return mustPolicy(l, limit.Named("all", two)).Handler(logging(mux(plain)))
		}, shared},
		"named as a handler": {func(l *limit.Limiter) http.Handler {
			return l.Limit(limit.Named("all", two))(mux(plain))
		}, shared},
	} {
		h := test.h(limit.New(nil, nil))
		for i, path := range []string{"/items/1", "/items/2", "/items/3", "/other"} {
			assert.Equal(t, test.want[i], send(h, "GET", path).Code, "%s: %s", name, path)
		}
	}

	l := limit.New(nil, nil)
	for name, declare := range map[string]func(){
		"one set around a mux":    func() { l.Limit(limit.Rules(two))(http.NewServeMux()) },
		"each route around a mux": func() { l.Limit(limit.EachRoute(two))(http.NewServeMux()) },
		"one set on two routes":   func() { mux(l.Limit(limit.Rules(two))) },
		"each route around Gin":   func() { l.Limit(limit.EachRoute(two))(gin.New()) },
		"one set around Echo":     func() { mustPolicy(l, limit.Rules(two)).Handler(echo.New()) },
		"no handler":              func() { l.Limit(limit.Rules(two))(nil) },
		"a nil HandlerFunc":       func() { l.Limit(limit.Rules(two))(http.HandlerFunc(nil)) },
		"no user": func() {
			mustPolicy(l, limit.Named("users", limit.PerUser(time.Hour, 1))).Handler(status(204))
		},
	} {
		assert.Panics(t, declare, name)
	}
}

// TestBindPathValues checks that rules by path values name those of the route.
func TestBindPathValues(t *testing.T) {
	limiter := limit.New(nil, nil)
	const text = "5/1s per path id and ip; 9/1s per path org or ip"
	const first, second = "\n\t" + text + "\n\t^", "\n\t" + text + "\n\t                         ^"
	rules := limit.MustParse(text)
	for pattern, want := range map[string]string{
		"": "", "/:id/:org": "", "GET /{id}/{org...}": "", "/{id:[0-9]+}-{org}": "", "/x:id/*org": "",
		"/users/:id/:item": `limit: rule "9/1s per path org or ip": key "path org": the path "/users/:id/:item" has no such value: write "path id" or "path item"` + second,
		"GET /users/{$}": `limit: rule "5/1s per path id and ip": key "path id": the path "GET /users/{$}" has no values: add one, or write another key` + first + "\n" +
			`limit: rule "9/1s per path org or ip": key "path org": the path "GET /users/{$}" has no values: add one, or write another key` + second,
	} {
		_, err := new(adapter.Adapter[any]).Bind(limiter, pattern, rules)
		if want == "" {
			assert.NoError(t, err, pattern)
		} else {
			assert.EqualError(t, err, want)
		}
	}
	_, err := new(adapter.Adapter[any]).Bind(limiter, "/files/*", limit.MustParse("5/1s per path *"))
	assert.NoError(t, err, "Echo's name for the rest of a path")
}

// TestDifferentRulesOnOneRoute has two engines, public and admin, serve one route with
// rules of one name: a loose bucket must not refill a strict one.
func TestDifferentRulesOnOneRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		engine := func(text string) *gin.Engine {
			engine := gin.New()
			engine.POST("/login", ginlimit.New(limiter).Limit(limit.MustParse(text)), func(c *gin.Context) { c.Status(http.StatusNoContent) })
			return engine
		}
		public, admin := engine("5/1m per ip token-bucket burst 5"), engine("600/1m per ip token-bucket burst 600")
		admitted := 0
		for range 400 {
			require.Equal(t, http.StatusNoContent, send(admin, "POST", "/login").Code)
			if send(public, "POST", "/login").Code == http.StatusNoContent {
				admitted++
			}
			time.Sleep(1500 * time.Millisecond)
		}
		assert.InDelta(t, 5+5*10, admitted, 2+5, "burst 5, and 5 a minute; at most a burst more when the second engine is met")
	})
}

// TestAnyMethod has one declaration for all methods, which share its quota.
func TestAnyMethod(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
	engine := gin.New()
	engine.Any("/x", ginlimit.New(limiter).Limit(limit.Rules(limit.PerIP(time.Hour, 2))), func(c *gin.Context) { c.Status(http.StatusNoContent) })
	server := echo.New()
	server.Any("/y", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) },
		echolimit.New(limiter).Limit(limit.Rules(limit.PerIP(time.Hour, 2))))
	for path, h := range map[string]http.Handler{"/x": engine, "/y": server} {
		admitted := 0
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"} {
			if send(h, method, path).Code == http.StatusNoContent {
				admitted++
			}
		}
		assert.Equal(t, 2, admitted, path)
	}
}

// TestObserveOutsideHTTP checks that each decision outside HTTP is observed once.
func TestObserveOutsideHTTP(t *testing.T) {
	var seen []string
	observe := func(r *http.Request, d limit.Decision, err error) {
		assert.Nil(t, r)
		seen = append(seen, fmt.Sprint(d.Policy, " ", d.Allowed, " ", err))
	}
	p := mustPolicy(limit.New(nil, &limit.Options{Observe: observe}), limit.Named("p", limit.Global(time.Hour, 3)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Get(p.Take(ctx, limit.Request{}))(t)
	must.Get(p.Wait(ctx, limit.Request{}))(t)
	must.Get(p.Peek(ctx, limit.Request{}))(t)
	must.Get(p.Take(ctx, limit.Request{Settle: true}))(t)
	_, err := p.Wait(ctx, limit.Request{})
	require.ErrorAs(t, err, new(*limit.RefusedError))
	must.Get(p.Take(ctx, limit.Request{Cost: 2, UpTo: true}))(t)
	_, err = p.Take(ctx, limit.Request{Cost: -1})
	require.Error(t, err)
	assert.Equal(t, []string{"p true <nil>", "p true <nil>", "p true <nil>", "p false <nil>", "p false <nil>"}, seen)

	seen = nil
	p = mustPolicy(limit.New(failing{err: errors.New("nonsense")}, &limit.Options{Observe: observe, Log: slog.New(slog.DiscardHandler)}),
		limit.Named("p", limit.Global(time.Hour, 3)))
	_, err = p.Take(ctx, limit.Request{})
	require.ErrorIs(t, err, limit.ErrUndecided)
	_, err = p.Wait(ctx, limit.Request{})
	require.ErrorIs(t, err, limit.ErrUndecided)
	const undecided = " false limit: could not decide: nonsense"
	assert.Equal(t, []string{undecided, undecided}, seen)
}
