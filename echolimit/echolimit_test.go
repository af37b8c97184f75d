package echolimit_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/adaptertest"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/throttle"
)

// router is an Echo server as the suite uses it.
type router struct {
	*echo.Echo
	routes
}

type routes struct {
	echolimit.Router
	limiter *echolimit.Limiter
}

func newRouter(l *limit.Limiter) adaptertest.Router {
	e := echo.New()
	return router{e, routes{e, echolimit.New(l)}}
}

func (r router) Use(rules limit.RuleSet) { r.Echo.Use(r.limiter.Limit(rules)) }

func (r router) After(answer http.Handler) {
	r.Echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			if err == nil && !c.Response().Committed {
				answer.ServeHTTP(c.Response(), c.Request())
			}
			return err
		}
	})
}

func (r router) Group(prefix string, rules limit.RuleSet) adaptertest.Routes {
	return routes{r.Echo.Group(prefix, r.limiter.Limit(rules)), r.limiter}
}

func (r router) Throttle(method, path string, h http.Handler, rules limit.RuleSet, options *throttle.Options) {
	r.Echo.Add(method, path, echo.WrapHandler(h), r.limiter.Throttle(rules, options))
}

func (r routes) Handle(method, path string, h http.Handler, rules ...limit.RuleSet) {
	var chain []echo.MiddlewareFunc
	for _, set := range rules {
		chain = append(chain, r.limiter.Limit(set))
	}
	r.Router.Add(method, adaptertest.Colons(path), echo.WrapHandler(h), chain...)
}

func TestAdapter(t *testing.T) { adaptertest.Run(t, newRouter) }

func FuzzRequest(f *testing.F) { adaptertest.Fuzz(f, newRouter) }

func ok(c echo.Context) error { return c.NoContent(http.StatusNoContent) }

// TestDeclaration is the declaration of the documentation, word for word.
func TestDeclaration(t *testing.T) {
	handler := ok
	server := echo.New()

	limiter := limit.New(nil, nil)
	e := echolimit.New(limiter)
	server.POST("/update", handler, e.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))))

	real := httptest.NewServer(server)
	defer real.Close()
	routetest.FiveInTwoSeconds(t, real.URL+"/update")
}

// limited returns a server whose route GET / admits one request.
func limited(options *limit.Options) *echo.Echo {
	e := echo.New()
	rl := echolimit.New(limit.New(nil, options))
	e.GET("/", ok, rl.Limit(limit.Rules(limit.PerIP(time.Minute, 1))))
	return e
}

// TestErrorHandlers checks that programs with an error handler of their own
// learn what happened, and that what they answer has its own media type.
func TestErrorHandlers(t *testing.T) {
	for _, test := range []struct {
		name, contentType, body string
		handler                 func(echo.Context, *echo.HTTPError) error
	}{
		{"page", "text/html; charset=UTF-8", "<h1>Too Many Requests</h1>", func(c echo.Context, he *echo.HTTPError) error {
			return c.HTML(he.Code, "<h1>"+http.StatusText(he.Code)+"</h1>")
		}},
		{"document of its own", "application/json", `{"error":429}`, func(c echo.Context, he *echo.HTTPError) error {
			return c.JSON(he.Code, map[string]int{"error": he.Code})
		}},
		{"the problem", "application/problem+json", "", func(c echo.Context, he *echo.HTTPError) error {
			return c.JSON(he.Code, he.Message)
		}},
		{"the problem, logged before", "application/problem+json", "", func(c echo.Context, he *echo.HTTPError) error {
			if _, err := json.Marshal(he.Message); err != nil {
				return err
			}
			return c.JSON(he.Code, he.Message)
		}},
		{"page, the problem logged before", "text/html; charset=UTF-8", "", func(c echo.Context, he *echo.HTTPError) error {
			if _, err := json.Marshal(he.Message); err != nil {
				return err
			}
			return c.HTML(he.Code, "<h1>Later</h1>")
		}},
		{"nothing", "", "", func(c echo.Context, he *echo.HTTPError) error { return c.NoContent(he.Code) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var seen error
			e := limited(nil)
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				seen = err
				var he *echo.HTTPError
				if assert.ErrorAs(t, err, &he) {
					assert.NoError(t, test.handler(c, he))
				}
			}
			require.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/").Code)
			require.NoError(t, seen)

			w := routetest.Do(e, "GET", "/")
			assert.Equal(t, http.StatusTooManyRequests, w.Code)
			assert.Equal(t, test.contentType, w.Header().Get("Content-Type"))
			assert.Equal(t, "60", w.Header().Get("Retry-After"))
			if test.body != "" {
				assert.Equal(t, test.body, string(trimLine(w.Body.Bytes())))
			}
			var refused *limit.RefusedError
			require.ErrorAs(t, seen, &refused)
			assert.Equal(t, []string{"per-ip-1m"}, refused.Decision.Refusing())
			assert.Regexp(t, `^code=429, message=Too Many Requests, internal=limit: refused by per-ip-1m, retry after \S+s$`, seen.Error())
		})
	}
}

func trimLine(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}

// TestDebug checks that Echo's debug mode does not change the answer.
func TestDebug(t *testing.T) {
	e := limited(nil)
	e.Debug = true
	routetest.Do(e, "GET", "/")
	w := routetest.Do(e, "GET", "/?pretty")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	assert.Contains(t, w.Body.String(), `"violated-policies": [`)
}

// TestMiddleware checks that middleware around the limiter sees the error, and
// none where a function in Options.Refuse has answered.
func TestMiddleware(t *testing.T) {
	var seen error
	watch := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			seen = next(c)
			return seen
		}
	}
	e := limited(nil)
	e.Use(watch)
	routetest.Do(e, "GET", "/")
	require.NoError(t, seen)
	routetest.Do(e, "GET", "/")
	var refused *limit.RefusedError
	require.True(t, errors.As(seen, &refused))

	e = limited(&limit.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) {
		w.WriteHeader(http.StatusTeapot)
	}})
	e.Use(watch)
	routetest.Do(e, "GET", "/")
	assert.Equal(t, http.StatusTeapot, routetest.Do(e, "GET", "/").Code)
	assert.NoError(t, seen)
}

// TestUser takes users from the context of Echo, where authentication put them.
func TestUser(t *testing.T) {
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("user", c.Request().Header.Get("Test-User"))
			return next(c)
		}
	}
	rules := limit.Rules(limit.PerUser(time.Minute, 1))

	rl := echolimit.New(limit.New(nil, nil))
	assert.PanicsWithError(t, "limit: rule \"1/1m per user\": no user resolver: set ginlimit.Limiter.User, echolimit.Limiter.User or the User of your adapter to read what authentication put into its context, or limit.Options.User on net/http",
		func() { rl.Limit(rules) })
	rl.User = func(c echo.Context) string {
		user, _ := c.Get("user").(string)
		return user
	}
	e := echo.New()
	e.GET("/", ok, authenticate, rl.Limit(rules))

	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/", "Test-User", "alice").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/", "Test-User", "bob").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/", "Test-User", "alice").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/").Code, "those without a user share one quota")
}

// TestPre checks that middleware that runs before the router counts requests
// as unmatched: there, nobody knows the route yet.
func TestPre(t *testing.T) {
	rl := echolimit.New(limit.New(nil, nil))
	e := echo.New()
	e.Pre(rl.Limit(limit.Rules(limit.PerIP(time.Minute, 2))))
	e.GET("/a", ok)
	e.GET("/b", ok)

	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/a").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/b").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/a").Code)
}

// TestGroupNotFound checks that paths invented below a group share one quota.
func TestGroupNotFound(t *testing.T) {
	rl := echolimit.New(limit.New(nil, nil))
	e := echo.New()
	g := e.Group("/api", rl.Limit(limit.Rules(limit.PerIP(time.Minute, 2))))
	g.GET("/real", ok)

	assert.Equal(t, http.StatusNotFound, routetest.Do(e, "GET", "/api/1").Code)
	assert.Equal(t, http.StatusNotFound, routetest.Do(e, "GET", "/api/2").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/api/3").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/api/real").Code)
}

func TestMount(t *testing.T) {
	e := echo.New()
	err := echolimit.New(limit.New(nil, nil)).Mount(e.Group("/v1"), struct {
		Update echo.HandlerFunc         `route:"POST /update" limit:"2/1m per ip; 1000/1h global"`
		Item   func(echo.Context) error `route:"GET /items/:id" limit:"1/1m per path id"`
		Health echo.HandlerFunc         `route:"GET /health" limit:"-"`
	}{Update: ok, Item: ok, Health: ok})
	require.NoError(t, err)

	w := routetest.Do(e, "POST", "/v1/update")
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.Equal(t, `"per-ip-1m";r=1;t=60, "global-1h";r=999;t=3600`, w.Header().Get("RateLimit"))
	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/v1/items/1").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/v1/items/2").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/v1/items/1").Code)
	w = routetest.Do(e, "GET", "/v1/health")
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.Empty(t, w.Header().Get("RateLimit"))
}

func TestMountErrors(t *testing.T) {
	e := echo.New()
	err := echolimit.New(limit.New(nil, nil)).Mount(e, struct {
		Good  echo.HandlerFunc `route:"GET /good" limit:"5/2s per ip"`
		Wrong http.HandlerFunc `route:"GET /wrong" limit:"5/2s per ip"`
		User  echo.HandlerFunc `route:"GET /user" limit:"5/2s per user"`
		Ten   int              `route:"GET /ten" limit:"-"`
	}{Good: ok, Wrong: func(http.ResponseWriter, *http.Request) {}, User: ok})

	require.Error(t, err)
	assert.ErrorContains(t, err, "field Wrong: limit: http.HandlerFunc")
	assert.ErrorContains(t, err, "field User: ")
	assert.ErrorContains(t, err, "field Ten: limit: int")
	var rule *limit.RuleError
	assert.True(t, errors.As(err, &rule))
	assert.Empty(t, e.Routes(), "nothing is mounted if anything is wrong")

	err = echolimit.New(limit.New(nil, nil)).Mount(e, struct {
		Good echo.HandlerFunc `route:"GET /good" limit:"5/2s per ip"`
		Nil  echo.HandlerFunc `route:"GET /nil" limit:"5/2s per ip"`
		Text echo.HandlerFunc `route:"GET /text" limit:"5/2x per ip"`
	}{Good: ok, Text: ok})
	assert.ErrorContains(t, err, "field Nil: ")
	assert.ErrorContains(t, err, "field Text: ")
	assert.Empty(t, e.Routes())
}
