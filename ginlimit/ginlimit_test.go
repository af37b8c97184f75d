package ginlimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/adaptertest"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/throttle"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

// router is a Gin engine as the suite uses it.
type router struct {
	*gin.Engine
	routes
}

type routes struct {
	gin.IRouter
	limiter *ginlimit.Limiter
}

func newRouter(l *limit.Limiter) adaptertest.Router {
	engine := gin.New()
	return router{engine, routes{engine, ginlimit.New(l)}}
}

func (r router) Use(rules limit.RuleSet) { r.Engine.Use(r.limiter.Limit(rules)) }

func (r router) After(answer http.Handler) {
	r.Engine.Use(func(c *gin.Context) {
		c.Next()
		if !c.Writer.Written() && c.Writer.Status() == http.StatusOK {
			answer.ServeHTTP(c.Writer, c.Request)
		}
	})
}

func (r router) Group(prefix string, rules limit.RuleSet) adaptertest.Routes {
	return routes{r.Engine.Group(prefix, r.limiter.Limit(rules)), r.limiter}
}

func (r router) Handle(method, path string, h http.Handler, rules ...limit.RuleSet) {
	r.routes.Handle(method, path, h, rules...)
}

func (r router) Throttle(method, path string, h http.Handler, rules limit.RuleSet, options *throttle.Options) {
	r.Engine.Handle(method, path, r.limiter.Throttle(rules, options), gin.WrapH(h))
}

func (r routes) Handle(method, path string, h http.Handler, rules ...limit.RuleSet) {
	var chain []gin.HandlerFunc
	for _, set := range rules {
		chain = append(chain, r.limiter.Limit(set))
	}
	r.IRouter.Handle(method, adaptertest.Colons(path), append(chain, gin.WrapH(h))...)
}

func TestAdapter(t *testing.T) { adaptertest.Run(t, newRouter) }

func FuzzRequest(f *testing.F) { adaptertest.Fuzz(f, newRouter) }

// TestPathValues sends one value in several encodings, to engines that leave them to
// handlers and to others. A handler that decodes what it gets means the same.
func TestPathValues(t *testing.T) {
	for i := range 1 << 4 {
		engine := gin.New()
		engine.UseRawPath, engine.UseEscapedPath, engine.UnescapePathValues, engine.RemoveExtraSlash = i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
		rl := ginlimit.New(limit.New(nil, nil))
		engine.GET("/users/:id", rl.Limit(limit.MustParse("1/1h per path id")), ok)
		engine.GET("/of/:kind/x-:id/*rest", rl.Limit(limit.MustParse("1/1h per path id and path rest")), ok)
		for _, test := range []struct {
			path   string
			status int
		}{
			{"/users/alice", 204}, {"/users/%61lice", 429}, {"/users/a%6Cic%65", 429},
			{"/users/%2561lice", 204}, {"/users/%2561lice", 429}, {"/users/%25%36%31lice", 429}, {"/users/100%25", 204},
			{"/of/%31/x-1/b", 204}, {"/of/2/x-%31/%62", 429}, {"/of/%2562/x-%31/%62", 429}, {"/of/2/x-1/%2562", 204},
			{"/of/^/x-carol/b", 204}, {"/of/^/x-c%61rol/b", 429}, {"/of/é/x-%63arol/%62", 429}, // raw bytes that are to be encoded
		} {
			if engine.RemoveExtraSlash {
				test.path = "/." + test.path
			}
			w := routetest.Do(engine, "GET", test.path)
			assert.Equal(t, test.status, w.Code, "%04b %s", i, test.path)
		}
	}
}

func ok(c *gin.Context) { c.Status(http.StatusNoContent) }

// TestDeclaration is the declaration of the documentation, word for word.
func TestDeclaration(t *testing.T) {
	handler := ok
	router := gin.New()

	limiter := limit.New(nil, nil)
	g := ginlimit.New(limiter)
	router.POST("/update", g.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000))), handler)

	server := httptest.NewServer(router)
	defer server.Close()
	routetest.FiveInTwoSeconds(t, server.URL+"/update")
}

// TestErrors checks that middleware around the limiter sees why it answered.
func TestErrors(t *testing.T) {
	for _, hook := range []func(http.ResponseWriter, *http.Request, limit.Decision){
		nil,
		func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) { w.WriteHeader(http.StatusTeapot) },
	} {
		var seen []*gin.Error
		var aborted bool
		router := gin.New()
		router.Use(func(c *gin.Context) {
			c.Next()
			seen, aborted = c.Errors, c.IsAborted()
		})
		rl := ginlimit.New(limit.New(nil, &limit.Options{Refuse: hook}))
		router.GET("/", rl.Limit(limit.Rules(limit.PerIP(time.Minute, 1))), ok)

		require.Equal(t, http.StatusNoContent, routetest.Do(router, "GET", "/").Code)
		require.Empty(t, seen)
		require.False(t, aborted)

		w := routetest.Do(router, "GET", "/")
		var refused *limit.RefusedError
		require.Len(t, seen, 1)
		require.ErrorAs(t, seen[0], &refused)
		assert.Equal(t, []string{"per-ip-1m"}, routetest.Refused(refused.Decision))
		assert.True(t, aborted)
		if hook != nil {
			assert.Equal(t, http.StatusTeapot, w.Code)
		}
	}
}

// TestEngine checks that rules on the engine answer for paths that do not
// exist, where Gin itself would write a 404.
func TestEngine(t *testing.T) {
	rl := ginlimit.New(limit.New(nil, nil))
	router := gin.New()
	router.HandleMethodNotAllowed = true
	router.Use(rl.Limit(limit.Rules(limit.PerIP(time.Minute, 2))))
	router.GET("/only-get", ok)

	assert.Equal(t, http.StatusNotFound, routetest.Do(router, "GET", "/a").Code)
	assert.Equal(t, http.StatusMethodNotAllowed, routetest.Do(router, "POST", "/only-get").Code)
	w := routetest.Do(router, "GET", "/b")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	assert.NotContains(t, w.Body.String(), "not found")
}

// TestUser takes users from the context of Gin, where authentication put them.
func TestUser(t *testing.T) {
	authenticate := func(c *gin.Context) { c.Set("user", c.GetHeader("Test-User")) }
	rules := limit.Rules(limit.PerUser(time.Minute, 1))

	rl := ginlimit.New(limit.New(nil, nil))
	assert.PanicsWithError(t, "limit: rule \"1/1m per user\": no user resolver: set Caller.User of limit.Options, or that of your adapter, such as rl.Caller.User",
		func() { rl.Limit(rules) })
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	router := gin.New()
	router.GET("/", authenticate, rl.Limit(rules), ok)

	assert.Equal(t, http.StatusNoContent, routetest.Do(router, "GET", "/", "Test-User", "alice").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(router, "GET", "/", "Test-User", "bob").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(router, "GET", "/", "Test-User", "alice").Code)
	assert.Equal(t, http.StatusNoContent, routetest.Do(router, "GET", "/").Code)
	assert.Equal(t, http.StatusTooManyRequests, routetest.Do(router, "GET", "/").Code, "those without a user share one quota")
}

func TestMount(t *testing.T) {
	adaptertest.Mount(t, func() (http.Handler, func(any) error) {
		router := gin.New()
		return router, func(api any) error { return ginlimit.New(limit.New(nil, nil)).Mount(router, api) }
	}, gin.HandlerFunc(ok), "/path/:id/*rest", "rest")
}

// TestMountPathOfGroup checks that rules find the path values of a group.
func TestMountPathOfGroup(t *testing.T) {
	api := struct {
		Item gin.HandlerFunc `route:"GET /items/:item" limit:"1/1m per path user and path item"`
	}{ok}
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))
	require.NoError(t, rl.Mount(router.Group("/users/:user"), api))
	assert.Len(t, router.Routes(), 1)
	assert.ErrorContains(t, rl.Mount(router.Group("/teams/:team"), api),
		`key "path user": the path "/teams/:team/items/:item" has no such value: write "path team" or "path item"`)
	assert.Len(t, router.Routes(), 1)
}

// TestStreamBehindMiddleware streams from an engine behind rules of net/http that settle:
// Gin asks the writer for methods by type assertions that panic.
func TestStreamBehindMiddleware(t *testing.T) {
	engine := gin.New()
	engine.GET("/stream", func(c *gin.Context) {
		left := 3
		c.Stream(func(w io.Writer) bool {
			_, err := io.WriteString(w, "part\n")
			left--
			return err == nil && left > 0
		})
	})
	policy := must.Get(limit.New(nil, nil).Policy(failed("all")))(t)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		server := httptest.NewUnstartedServer(policy.Handler(engine))
		server.EnableHTTP2 = proto == "HTTP/2.0"
		server.StartTLS()
		defer server.Close()
		for range 7 {
			response := must.Get(server.Client().Get(server.URL + "/stream"))(t)
			body := must.Get(io.ReadAll(response.Body))(t)
			response.Body.Close()
			assert.Equal(t, proto, response.Proto)
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.Equal(t, "part\npart\npart\n", string(body))
		}
	}
}
