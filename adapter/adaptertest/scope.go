package adaptertest

import (
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
