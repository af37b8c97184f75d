package echov5limit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/adaptertest"
	"github.com/routelimit/limit/adapter/echov5limit"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/throttle"
)

// router is an Echo server as the suite uses it.
type router struct {
	*echo.Echo
	routes
}

type routes struct {
	echov5limit.Router
	limiter *echov5limit.Limiter
}

func newRouter(l *limit.Limiter) adaptertest.Router {
	e := echo.New()
	return router{e, routes{e, echov5limit.New(l)}}
}

func (r router) Use(rules limit.RuleSet) { r.Echo.Use(r.limiter.Limit(rules)) }

func (r router) After(answer http.Handler) {
	r.Echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			if response, _ := echo.UnwrapResponse(c.Response()); err == nil && !response.Committed {
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

func ok(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }

// TestDeclaration is the declaration of the documentation, word for word.
func TestDeclaration(t *testing.T) {
	handler := ok
	server := echo.New()

	limiter := limit.New(nil, nil)
	e := echov5limit.New(limiter)
	server.POST("/update", handler, e.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))))

	real := httptest.NewServer(server)
	defer real.Close()
	routetest.FiveInTwoSeconds(t, real.URL+"/update")
}

func TestMount(t *testing.T) {
	adaptertest.Mount(t, func() (http.Handler, func(any) error) {
		router := echo.New()
		return router, func(api any) error { return echov5limit.New(limit.New(nil, nil)).Mount(router, api) }
	}, echo.HandlerFunc(ok), "/path/:id/*", "*")
}

// TestMountPathOfGroup checks that rules may name the path values of a group, though
// Echo does not export its prefix.
func TestMountPathOfGroup(t *testing.T) {
	api := struct {
		Item echo.HandlerFunc `route:"GET /items/:item" limit:"1/1m per path user and path item"`
	}{ok}
	router := echo.New()
	rl := echov5limit.New(limit.New(nil, nil))
	require.NoError(t, rl.Mount(router.Group("/users/:user"), api))
	assert.Len(t, router.Router().Routes(), 1)
	assert.ErrorContains(t, rl.Mount(router, api),
		`key "path user": the path "/items/:item" has no such value: write "path item"`)
	assert.Len(t, router.Router().Routes(), 1)
}
