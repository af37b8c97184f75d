package adaptertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/rules"
)

// many is a set that outer layers have: attempts counts what inner sets refuse.
func many(name string, attempts bool) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 100, Window: time.Hour, Attempts: attempts})
}

// layers sends ten requests through sets of the whole router and of a group to a route
// that admits three.
func (s suite) layers(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	all, group, attempts := many("all", false), many("group", false), many("attempts", true)
	router.Use(all)
	router.Group("/api", group).Handle("GET", "/item", ok, attempts, rule("route", limit.Everyone, 3))
	c := serve(t, router)
	c.expect("GET", "/api/item", 204, 204, 204, 429, 429, 429, 429, 429, 429)
	a := c.send("GET", "/api/item")
	assert.Equal(t, `"all";r=97;t=3600, "group";r=97;t=3600, "attempts";r=90;t=3600, "route";r=0;t=3600`,
		strings.Join(a.Header.Values("RateLimit"), ", "))
	assert.EqualValues(t, 97, left(t, limiter, all))
	assert.EqualValues(t, 97, left(t, limiter, group))
	assert.EqualValues(t, 90, left(t, limiter, attempts))
}

// layersOfHandlers has a handler send requests of its own, with its context, to a route
// that refuses them: they give back nothing of the request that the handler serves.
func (s suite) layersOfHandlers(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	outer := many("outer", false)
	parts := s.one(limiter, ok, limit.Named("parts", limit.Rule{Name: "part", Key: limit.Everyone, Limit: 1, Window: time.Hour}))
	router.Handle("GET", "/batch", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			part := httptest.NewRecorder()
			parts.ServeHTTP(part, httptest.NewRequestWithContext(r.Context(), "GET", "/", nil))
			require.Equal(t, i > 0, part.Code == http.StatusTooManyRequests)
		}
		ok(w, r)
	}), outer)
	serve(t, router).expect("GET", "/batch", 204)
	assert.EqualValues(t, 99, left(t, limiter, outer))
}

// layersAroundTimeouts has an http.TimeoutHandler stand between the router and a set of
// net/http around it.
func (s suite) layersAroundTimeouts(t *testing.T) {
	limiter := limit.New(nil, nil)
	outer := many("outer", false)
	policy, err := limiter.Policy(outer)
	require.NoError(t, err)
	router := s.one(limiter, ok, rule("route", limit.Everyone, 3))
	c := serve(t, policy.Handler(http.TimeoutHandler(router, time.Minute, "")))
	c.expect("GET", "/", 204, 204, 204, 429, 429, 429)
	assert.EqualValues(t, 97, left(t, limiter, outer))
}

func rule(name string, key limit.KeyResolver, n int64) limit.RuleSet {
	return limit.Rules(limit.Rule{Name: name, Key: key, Limit: n, Window: time.Hour})
}

// shared returns a set for many routes.
func shared(name string, key limit.KeyResolver, n int64) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: key, Limit: n, Window: time.Hour})
}

// manyRoutes puts sets that are not named on the whole router and on a group. Where
// the framework knows the route, each route counts alone, and a set made by Rules is
// logged at its second route. Where it does not, the declaration panics.
func (s suite) manyRoutes(t *testing.T) {
	for name, test := range map[string]struct {
		rules limit.RuleSet
		lines int
	}{
		"Rules":     {limit.Rules(limit.Global(time.Hour, 1)), 1},
		"EachRoute": {limit.EachRoute(limit.Global(time.Hour, 1)), 0},
	} {
		for _, prefix := range []string{"", "/api"} {
			book := new(logbook.Book)
			router := s.framework(limit.New(nil, &limit.Options{Log: book.Log(), Instances: 1}))
			var routes Routes = router
			if declare := func() {
				if prefix == "" {
					router.Use(test.rules)
				} else {
					routes = router.Group(prefix, test.rules)
				}
			}; panics(t, declare) {
				continue
			}
			routes.Handle("GET", "/a", ok)
			routes.Handle("GET", "/b", ok)
			c := serve(t, router)

			c.expect("GET", prefix+"/a", 204, 429)
			c.expect("GET", prefix+"/b", 204, 429)
			lines := book.Lines()
			require.Len(t, lines, test.lines, name)
			if test.lines > 0 {
				assert.Contains(t, lines[0], "code="+notice.SecondRoute)
				assert.Contains(t, lines[0], prefix+"/a")
				assert.Contains(t, lines[0], prefix+"/b")
			}
			if prefix == "" { // all paths without a route share a quota, or clients would choose theirs
				c.expect("GET", "/none/1", 404)
				c.expect("GET", "/none/2", 429)
			}
		}
	}
}

// panics reports whether f panics, and requires the panic to be a rules.Error.
func panics(t *testing.T, f func()) (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			err, _ := p.(error)
			require.ErrorAs(t, err, new(*rules.Error))
			require.ErrorContains(t, err, "write limit.Named", "the panic is about the scope")
			panicked = true
		}
	}()
	f()
	return false
}
