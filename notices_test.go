package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// TestNotices causes each warning that clients can cause again and again.
func TestNotices(t *testing.T) {
	perIP := limit.Rules(limit.PerIP(time.Hour, 1000))
	settled := limit.Global(time.Hour, 1000)
	settled.Settle = rules.SettleBy("units", func(*http.Request, int) int64 { return -1 })
	for _, test := range []struct {
		name  string
		store core.Store
		rules limit.RuleSet
		want  string
	}{
		{"a store with invalid replies", failing{err: errors.New("nonsense")}, perIP,
			`level=WARN msg="limit: a request could not be decided" code=LIMIT-201 error="limit: could not decide: nonsense"`},
		{"a settlement that makes no sense", nil, limit.Rules(settled),
			`level=WARN msg="limit: an admitted request could not be settled" code=LIMIT-202 error="limit: could not decide: rule \"global-1h\": settled: cost -1: write 0 or more"`},
		{"more keys than there is room for", full(t), perIP,
			`level=WARN msg="limit: more keys than MaxKeys: new keys share quotas, and may be refused early" code=LIMIT-204 policy="GET /"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook.Book)
				h := limit.New(test.store, &limit.Options{Log: book.Log(), Instances: 1}).Limit(test.rules)(status(http.StatusOK))
				request := func() { routed(h, "GET /") }
				request()
				require.Equal(t, []string{test.want}, book.Lines())
				for range 10 {
					request()
				}
				time.Sleep(time.Minute - 1)
				request()
				require.Empty(t, book.Lines())
				time.Sleep(time.Nanosecond)
				request()
				lines := book.Lines()
				require.Len(t, lines, 1)
				assert.True(t, strings.HasPrefix(lines[0], test.want+" skipped="), "%s", lines[0])
			})
		})
	}
}

type failing struct {
	core.Store
	err error
}

func (f failing) Take(context.Context, []core.Ask) error { return f.err }

// routed sends a request that a ServeMux has routed to h.
func routed(h http.Handler, pattern string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	r.Pattern = pattern
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// logged returns a limiter with the book that it logs to.
func logged(o limit.Options) (*limit.Limiter, *logbook.Book) {
	book := new(logbook.Book)
	o.Log, o.Instances = book.Log(), 1 // whatever the machine of the test is
	return limit.New(nil, &o), book
}

// TestNoticeOfSecondRoute has one set meet several routes.
func TestNoticeOfSecondRoute(t *testing.T) {
	const want = `level=WARN msg="limit: a rule set made by limit.Rules covers several routes or methods: ` +
		`write limit.Named for one quota of all, or limit.EachRoute if each is meant to count alone" code=LIMIT-101 ` +
		`rules="9/1m global" first="GET /a" second="GET /b"`
	nine := limit.Global(time.Minute, 9)
	for _, test := range []struct {
		rules limit.RuleSet
		want  []string
	}{
		{limit.Rules(nine), []string{want}},
		{limit.Named("nine", nine), nil},
		{limit.EachRoute(nine), nil},
	} {
		limiter, book := logged(limit.Options{})
		h := limiter.Limit(test.rules)(status(http.StatusOK))
		for _, pattern := range []string{"GET /a", "GET /a", "GET /b", "GET /b", "GET /c"} {
			routed(h, pattern)
		}
		assert.ElementsMatch(t, test.want, book.Lines(), test.rules.String())
	}
}

// TestNoticeOfNoRoute has sets meet requests without a route, first or after others.
func TestNoticeOfNoRoute(t *testing.T) {
	nine := limit.Global(time.Minute, 9)
	for _, test := range []struct {
		rules    limit.RuleSet
		patterns []string
		want     int
	}{
		{limit.Rules(nine), []string{"", ""}, 1},
		{limit.EachRoute(nine), []string{"", ""}, 1},
		{limit.EachRoute(nine), []string{"/api/*", "/api/*"}, 1}, // chi's Route("/api") and Use
		{limit.EachRoute(nine), []string{"GET /a", ""}, 0},
		{limit.Named("nine", nine), []string{""}, 0},
	} {
		limiter, book := logged(limit.Options{})
		h := limiter.Limit(test.rules)(status(http.StatusOK))
		for _, pattern := range test.patterns {
			routed(h, pattern)
		}
		lines := book.Lines()
		require.Len(t, lines, test.want, "%v", test)
		if test.want > 0 {
			assert.Equal(t, `level=WARN msg="limit: a rule set without a name met a request without a route: `+
				`all such requests share one quota; write limit.Named" code=LIMIT-103 rules="9/1m global"`, lines[0])
		}
	}

	// A framework's 404 is no mistake of EachRoute.
	limiter, book := logged(limit.Options{})
	engine := gin.New()
	engine.Use(ginlimit.New(limiter).Limit(limit.EachRoute(nine)))
	routetest.Do(engine, "GET", "/none")
	assert.Empty(t, book.Lines())
}

// TestNoticeOfSharedPattern has two sets on one pattern, which does not tell the
// method on chi.
func TestNoticeOfSharedPattern(t *testing.T) {
	for _, test := range []struct {
		pattern string
		second  limit.Rule
		want    string
	}{
		{"/reports", limit.PerIP(time.Hour, 3), `code=LIMIT-109 pattern=/reports first="3/1h per ip" second="3/1h per ip"`},
		{"/reports", limit.PerIP(time.Hour, 2), `code=LIMIT-110 route=/reports rule=per-ip-1h first="3/1h per ip" second="2/1h per ip"`},
		{"GET /reports", limit.PerIP(time.Hour, 2), `code=LIMIT-110 route="GET /reports" rule=per-ip-1h first="3/1h per ip" second="2/1h per ip"`},
		{"GET /reports", limit.PerIP(time.Hour, 3), ""},
	} {
		limiter, book := logged(limit.Options{})
		get := limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 3)))(status(http.StatusOK))
		post := limiter.Limit(limit.Rules(test.second))(status(http.StatusOK))
		for range 2 {
			routed(get, test.pattern)
			routed(post, test.pattern)
		}
		lines := book.Lines()
		if test.want == "" {
			assert.Empty(t, lines)
		} else if assert.Len(t, lines, 1, test) {
			assert.Contains(t, lines[0], test.want)
		}
	}
}

// TestNoticeOfUntrustedProxy sends forwarding headers to limiters that trust no
// proxy, or one.
func TestNoticeOfUntrustedProxy(t *testing.T) {
	for _, test := range []struct {
		options limit.Options
		key     limit.KeyResolver
		header  string
		want    int
	}{
		{limit.Options{}, limit.ByIP, "X-Forwarded-For", 1},
		{limit.Options{}, limit.ByIP, "Forwarded", 1},
		{limit.Options{}, limit.ByHeader("X-Key").Or(limit.ByIP), "X-Forwarded-For", 1},
		{limit.Options{}, limit.ByIP, "X-Real-Ip", 1},
		{limit.Options{}, limit.ByIP, "X-Other", 0},
		{limit.Options{Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}, limit.ByIP, "X-Forwarded-For", 1},
		{limit.Options{}, limit.Everyone, "X-Forwarded-For", 0},
		{limit.Options{Proxies: limit.Proxies{Hops: 1}}, limit.ByIP, "X-Forwarded-For", 0},
	} {
		limiter, book := logged(test.options)
		h := limiter.Limit(limit.Rules(limit.Per(test.key, time.Minute, 9)))(status(http.StatusOK))
		routed(h, "GET /")
		assert.Empty(t, book.Lines())
		routed(h, "GET /", test.header, "203.0.113.1")
		routed(h, "GET /", test.header, "203.0.113.2")
		lines := book.Lines()
		require.Len(t, lines, test.want, "%v %s", test.key, test.header)
		if test.want > 0 {
			assert.Contains(t, lines[0], "code=LIMIT-105 header="+test.header)
			assert.Contains(t, lines[0], "limit.Options.Proxies")
		}
	}
}

// TestNoticeOfSilentProxy has a trusted proxy name its clients, or not.
func TestNoticeOfSilentProxy(t *testing.T) {
	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}} // of httptest's requests
	realIP := trusted
	realIP.Header = "X-Real-IP"
	for _, test := range []struct {
		proxies limit.Proxies
		key     limit.KeyResolver
		header  string
		want    int
	}{
		{trusted, limit.ByIP, "X-Forwarded-For", 0},
		{trusted, limit.ByIP, "X-Real-IP", 1},
		{realIP, limit.ByIP, "X-Real-IP", 0},
		{realIP, limit.ByIP, "X-Forwarded-For", 1},
		{trusted, limit.Everyone, "X-Other", 0},
		{limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, limit.ByIP, "X-Other", 0},
		{limit.Proxies{Hops: 1}, limit.ByIP, "X-Other", 0},
	} {
		limiter, book := logged(limit.Options{Proxies: test.proxies})
		h := limiter.Limit(limit.Rules(limit.Per(test.key, time.Minute, 9)))(status(http.StatusOK))
		routed(h, "GET /", test.header, "203.0.113.1")
		routed(h, "GET /", test.header, "203.0.113.1")
		lines := book.Lines()
		require.Len(t, lines, test.want, "%v %s", test.key, test.header)
		if test.want > 0 {
			assert.Contains(t, lines[0], "code=LIMIT-108")
		}
	}
}

// TestNoticeOfLateUser puts authentication before and behind the rules.
func TestNoticeOfLateUser(t *testing.T) {
	perUser := limit.Rules(limit.PerUser(time.Hour, 9))
	for _, late := range []bool{false, true} {
		for _, user := range []string{"alice", ""} {
			limiter, book := logged(limit.Options{})
			engine := gin.New()
			rl := ginlimit.New(limiter)
			rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
			chain := []gin.HandlerFunc{func(c *gin.Context) { c.Set("user", user) }, rl.Limit(perUser)}

			server := echo.New()
			echoLimiter, echoBook := logged(limit.Options{})
			el := echolimit.New(echoLimiter)
			el.Caller.User = func(c echo.Context) string { u, _ := c.Get("user").(string); return u }
			echoChain := []echo.MiddlewareFunc{func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { c.Set("user", user); return next(c) }
			}, el.Limit(perUser)}
			if late {
				slices.Reverse(chain)
				slices.Reverse(echoChain)
			}
			engine.GET("/a", append(chain, func(*gin.Context) {})...)
			server.GET("/a", func(echo.Context) error { return nil }, echoChain...)
			for range 3 {
				routetest.Do(engine, "GET", "/a")
				routetest.Do(server, "GET", "/a")
			}
			for _, lines := range [][]string{book.Lines(), echoBook.Lines()} {
				if !late || user == "" {
					assert.Empty(t, lines)
				} else if assert.Len(t, lines, 1) {
					assert.Contains(t, lines[0], `code=LIMIT-107 policy="GET /a"`)
				}
			}
		}
	}
}

// TestNoticeOfPathValueNamed keys a named set by a path value that one of its routes
// does not have.
func TestNoticeOfPathValueNamed(t *testing.T) {
	limiter, book := logged(limit.Options{})
	h := limiter.Limit(limit.Named("items", limit.Per(limit.ByPathValue("id"), time.Minute, 9)))(status(http.StatusOK))
	for _, pattern := range []string{"GET /items/{id}", "GET /items/{item}", "GET /items/{item}"} {
		routed(h, pattern)
	}
	lines := book.Lines()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], `code=LIMIT-106 rule="9/1m per path id" route="GET /items/{item}" value=id`)
}

// TestNoticeOfPathValue keys a rule by a path value that its route does not have.
func TestNoticeOfPathValue(t *testing.T) {
	for pattern, want := range map[string]int{
		"GET /users/{id}": 0, "GET /users/{id...}": 0, "/users/{id:[0-9]+}": 0, "GET /users/{uid}": 1, "GET /users": 1,
		"/a/:id": 0, "/a/:uid/b": 1, "/files/*id": 0,
	} {
		limiter, book := logged(limit.Options{})
		h := limiter.Limit(limit.Rules(limit.Per(limit.ByPathValue("id"), time.Minute, 9)))(status(http.StatusOK))
		routed(h, pattern)
		routed(h, pattern)
		lines := book.Lines()
		require.Len(t, lines, want, pattern)
		if want > 0 {
			assert.Contains(t, lines[0], "code=LIMIT-106 rule=\"9/1m per path id\" route=")
		}
	}
}

// TestNoticeOfChargedTwice charges requests to one quota twice, in every form.
func TestNoticeOfChargedTwice(t *testing.T) {
	two := limit.Rules(limit.Global(time.Minute, 9))
	named := limit.Named("all", limit.Global(time.Minute, 9))
	const onNamed, onRoute = "policy=all rule=global-1m", `policy="GET /a" rule=global-1m`
	for name, test := range map[string]struct {
		serve func(*limit.Limiter) http.Handler
		want  string
	}{
		"middleware twice": {func(l *limit.Limiter) http.Handler {
			p := mustPolicy(l, named)
			return p.Handler(p.Handler(status(http.StatusOK)))
		}, onNamed},
		"a set bound twice": {func(l *limit.Limiter) http.Handler {
			return mustPolicy(l, named).Handler(l.Limit(named)(status(http.StatusOK)))
		}, onNamed},
		"two sets on a route": {func(l *limit.Limiter) http.Handler {
			return l.Limit(two)(l.Limit(two)(status(http.StatusOK)))
		}, onRoute},
		"Gin, group and group": {func(l *limit.Limiter) http.Handler {
			rl := ginlimit.New(l)
			engine := gin.New()
			engine.Use(rl.Limit(limit.EachRoute(limit.Global(time.Minute, 9))))
			engine.Group("", rl.Limit(limit.EachRoute(limit.Global(time.Minute, 9)))).GET("/a", func(*gin.Context) {})
			return engine
		}, onRoute + ` first="9/1m global" second="9/1m global"`},
		"named, after other requests": {func(l *limit.Limiter) http.Handler {
			rl := ginlimit.New(l)
			engine := gin.New()
			named := limit.Named("all", limit.Global(time.Minute, 1000))
			engine.Use(rl.Limit(named))
			engine.GET("/a", rl.Limit(named), func(*gin.Context) {})
			engine.GET("/health", func(*gin.Context) {})
			for range 50 { // health checks
				routetest.Do(engine, "GET", "/health")
			}
			return engine
		}, onNamed},
		"each route and a route": {func(l *limit.Limiter) http.Handler {
			rl := ginlimit.New(l)
			engine := gin.New()
			engine.Use(rl.Limit(limit.EachRoute(limit.Global(time.Minute, 9))))
			engine.GET("/a", rl.Limit(two), func(*gin.Context) {})
			return engine
		}, ""},
		"two names": {func(l *limit.Limiter) http.Handler {
			return mustPolicy(l, named).Handler(l.Limit(two)(status(http.StatusOK)))
		}, ""},
		"two rules": {func(l *limit.Limiter) http.Handler {
			return l.Limit(limit.Rules(limit.PerIP(time.Minute, 9)))(l.Limit(two)(status(http.StatusOK)))
		}, ""},
	} {
		limiter, book := logged(limit.Options{})
		h := test.serve(limiter)
		for range 3 {
			r := httptest.NewRequest("GET", "/a", nil)
			r.Pattern = "GET /a"
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		lines := book.Lines()
		if test.want == "" {
			assert.Empty(t, lines, name)
			continue
		}
		require.Len(t, lines, 1, name)
		assert.Contains(t, lines[0], "code=LIMIT-102 "+test.want, name)
	}
}

// full returns a memory store that has no room for a new key.
func full(t *testing.T) core.Store {
	store := memstore.New(&memstore.Options{MaxKeys: 1})
	limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)})
	rules := limit.Named("others", limit.Per(limit.ByHeader("X"), 24*time.Hour, 5))
	for i := range 8_000 { // so that no shard has room, but once in 10^11
		must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{"header X": fmt.Sprint(i)}}))(t)
	}
	return store
}

// TestNoticesCostNothing holds that a decision that would have something logged, and
// comes too soon for it, allocates no more than one that has nothing to say.
func TestNoticesCostNothing(t *testing.T) {
	race.Skip(t) // which drops what is put into pools
	rules := limit.Named("p", limit.PerIP(time.Hour, 1000))
	keys := map[string]string{"ip": "192.0.2.1"}
	allocations := func(store core.Store, mode core.Mode) float64 {
		policy := mustPolicy(limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)}), rules)
		return testing.AllocsPerRun(100, func() {
			d, err := policy.Take(t.Context(), limit.Request{Keys: keys})
			if err != nil || d.Mode != mode {
				t.Fatal(d.Mode, err)
			}
		})
	}
	assert.Equal(t, allocations(memstore.New(nil), core.ModeExact), allocations(full(t), core.ModeOverflow))
}

func TestDecisionLogValue(t *testing.T) {
	limiter := limit.New(nil, nil)
	rules := limit.Named("p", limit.Rule{Name: "r", Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{Burst: 2}})
	book := new(logbook.Book)
	for range 4 {
		d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{}}))(t)
		book.Log().Info("took", "decision", d)
	}
	book.Log().Info("none", "decision", limit.Decision{})
	lines := book.Lines()
	require.Len(t, lines, 5)
	assert.Equal(t, `level=INFO msg=took decision.policy=p decision.allowed=true decision.mode=exact`, lines[0])
	assert.Regexp(t, `^level=INFO msg=took decision.policy=p decision.allowed=true decision.mode=exact decision.delay=59m59\.\d+s$`, lines[1])
	assert.Regexp(t, `^level=INFO msg=took decision.policy=p decision.allowed=false decision.mode=exact decision.refusing=\[r\] decision.retry_after=`, lines[3])
	assert.Equal(t, `level=INFO msg=none decision.policy="" decision.allowed=false decision.mode=exact decision.refusing=[] decision.retry_after=0s`, lines[4])
}
