package adaptertest

import (
	"fmt"
	"net/http"
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

func rule(name string, key limit.KeyResolver, n int64) limit.RuleSet {
	return limit.Rules(limit.Rule{Name: name, Key: key, Limit: n, Window: time.Hour})
}

// shared returns a set for many routes.
func shared(name string, key limit.KeyResolver, n int64) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: key, Limit: n, Window: time.Hour})
}

// routes checks that a set declared on several routes has quotas on each, and that nothing
// is logged.
func (s suite) routes(t *testing.T) {
	for _, rules := range []limit.RuleSet{limit.Rules(limit.PerIP(time.Hour, 1)), limit.EachRoute(limit.PerIP(time.Hour, 1))} {
		limiter, book := logged()
		router := s.framework(limiter)
		router.Handle("GET", "/a", ok, rules)
		router.Handle("POST", "/a", ok, rules)
		router.Handle("GET", "/b/{id}", ok, rules)
		c := serve(t, router)

		c.expect("GET", "/a", 204, 429)
		c.expect("POST", "/a", 204, 429)
		c.expect("GET", "/b/1", 204, 429)
		c.expect("GET", "/b/2", 429) // a route is its pattern, not the path
		assert.Empty(t, book.Lines(), rules)
	}
}

// named checks that a named set has one quota on all its routes.
func (s suite) named(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	rules := limit.Named("shared", limit.PerIP(time.Hour, 2))
	router.Handle("GET", "/a", ok, rules)
	router.Handle("POST", "/b", ok, rules)
	c := serve(t, router)

	c.expect("GET", "/a", 204)
	c.expect("POST", "/b", 204, 429)
	c.expect("GET", "/a", 429)
}

// stacked puts rules before everything, on a group and on a route. They
// decide a request from the outside in, and add to the same fields.
func (s suite) stacked(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	router.Use(shared("all", limit.Everyone, 9))
	group := router.Group("/api", shared("group", limit.Everyone, 3))
	group.Handle("GET", "/item", ok, rule("route", limit.Everyone, 2))
	c := serve(t, router)

	a := c.send("GET", "/api/item")
	require.Equal(t, http.StatusNoContent, a.StatusCode)
	members := strings.Join(a.Header.Values("RateLimit"), ", ")
	assert.Equal(t, `"all";r=8;t=3600, "group";r=2;t=3600, "route";r=1;t=3600`, members)
	assert.Equal(t, `"all";q=9;w=3600, "group";q=3;w=3600, "route";q=2;w=3600`,
		strings.Join(a.Header.Values("RateLimit-Policy"), ", "))

	require.Equal(t, http.StatusNoContent, c.send("GET", "/api/item").StatusCode)
	for range 2 { // which cost the others nothing
		p := requireProblem(t, c.send("GET", "/api/item"), http.StatusTooManyRequests)
		assert.Equal(t, []string{"route"}, p.Violated)
	}
	group.Handle("GET", "/other", ok, rule("other", limit.Everyone, 2))
	c.expect("GET", "/api/other", 204)
	p := requireProblem(t, c.send("GET", "/api/other"), http.StatusTooManyRequests)
	assert.Equal(t, []string{"group"}, p.Violated, "the policies outside decide first, each for itself")
}

// unmatched sends requests to paths that do not exist. They share the quota of the
// named set with the routes, so that inventing paths gives no client another.
func (s suite) unmatched(t *testing.T) {
	c := s.wholeRouter(t)
	for i, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS"} {
		require.Equal(t, http.StatusNotFound, c.send(method, fmt.Sprintf("/nothing/%d/here", i)).StatusCode)
	}
	for i := range 5 {
		requireProblem(t, c.send("GET", fmt.Sprintf("/x%d", i)), http.StatusTooManyRequests)
	}
	c.expect("GET", "/real", 429) // one quota for all
}

// inventedMethods checks that methods that clients make up share one quota.
func (s suite) inventedMethods(t *testing.T) {
	c := s.wholeRouter(t)
	for i := range 5 {
		status := c.send(fmt.Sprintf("INVENTED%d", i), "/real").StatusCode
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, status)
	}
	c.expect("ANOTHER", "/real", 429)
}

// wholeRouter returns a client of a server that admits five requests of it to any path. It
// has one route.
func (s suite) wholeRouter(t *testing.T) client {
	router := s.framework(limit.New(nil, nil))
	router.Use(shared("all", limit.ByIP, 5))
	router.Handle("GET", "/real", ok)
	return serve(t, router)
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
			limiter, book := logged()
			router := s.framework(limiter)
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

// logged returns a limiter with the book that it logs to.
func logged() (*limit.Limiter, *logbook.Book) {
	book := new(logbook.Book)
	return limit.New(nil, &limit.Options{Log: book.Log(), Instances: 1}), book
}

// chargedTwice declares one set twice on a route: each request is charged twice, and
// that is logged once.
func (s suite) chargedTwice(t *testing.T) {
	for _, rules := range []limit.RuleSet{limit.Rules(limit.Global(time.Hour, 4)), shared("all", limit.Everyone, 4)} {
		limiter, book := logged()
		c := serve(t, s.one(limiter, ok, rules, rules))

		c.expect("GET", "/", 204, 204, 429)
		lines := book.Lines()
		require.Len(t, lines, 1, rules)
		assert.Contains(t, lines[0], "code="+notice.ChargedTwice)
	}
}

// missingPathValue keys a rule by a path value that its route does not have: all
// requests share one quota, and that is logged once.
func (s suite) missingPathValue(t *testing.T) {
	limiter, book := logged()
	router := s.framework(limiter)
	router.Handle("GET", "/users/{uid}", ok, limit.Rules(limit.Per(limit.ByPathValue("id"), time.Hour, 1)))
	c := serve(t, router)

	c.expect("GET", "/users/alice", 204)
	c.expect("GET", "/users/bob", 429)
	lines := book.Lines()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "code="+notice.NoPathValue)
	assert.Contains(t, lines[0], "value=id")
}
