package limit

import (
	"cmp"
	"net/http"
	"reflect"

	"github.com/routelimit/limit/internal/response"
)

// Handler returns a handler for one route, which calls next with the requests
// that the rules admit and answers the others:
//
//	mux.Handle("POST /update", policy.Handler(update))
//
// Unless the set is [Named], the pattern of the route names its quotas. Handler
// panics if a rule by user has no [Options].User, and if one set made by [Rules]
// would cover several routes: if next is a ServeMux, or at the second call. It
// calls next after the wait of a [Queue], and settles and releases what the
// request holds when next returns or panics.
//
// Around a router the path has not been parsed yet, and [ByPathValue] finds no
// value there.
func (p *Policy) Handler(next http.Handler) http.Handler {
	p.mustAttach(next)
	if p.set.scope == scopeRoute && p.attached.Swap(true) {
		panic(&RuleError{Problem: "one set of rules covers two routes: write limit.Named(\"…\", rules…) for one quota of " +
			"both, limit.EachRoute(rules…) for a quota of each, or bind the set once for each route"})
	}
	return p.handler(next, true)
}

// Middleware returns a handler for everything behind next: a group of routes, a
// router, or a whole server. It is middleware for chi and any other router:
//
//	router.Use(policy.Middleware)
//
// The route is not known where middleware runs, so the set must be [Named], and
// all requests share its quotas. Middleware panics otherwise.
func (p *Policy) Middleware(next http.Handler) http.Handler {
	if p.named == nil {
		panic(&RuleError{Problem: "middleware covers many routes and knows none: write limit.Named(\"…\", rules…) for one quota " +
			"of all, or put the rules on each route with Policy.Handler"})
	}
	p.mustAttach(next)
	return p.handler(next, false)
}

// mustAttach panics if the policy cannot decide requests to next.
func (p *Policy) mustAttach(next http.Handler) {
	if v := reflect.ValueOf(next); next == nil || v.Kind() == reflect.Func && v.IsNil() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(&RuleError{Problem: "the handler behind the rules is nil"})
	}
	if _, router := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	}); router && p.named == nil {
		panic(&RuleError{Problem: "a ServeMux has many routes: write limit.Named(\"…\", rules…) for one quota of all, " +
			"or put the rules on each route"})
	}
	if err := p.limiter.check(p.set, &Call{}); err != nil {
		panic(err)
	}
}

func (p *Policy) handler(next http.Handler, route bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c Call
		if p.settles {
			recorder := response.Record(w)
			c.Status = recorder.Status
			c.Next = func(r *http.Request) (int, error) {
				next.ServeHTTP(recorder, r)
				return cmp.Or(recorder.Status(), http.StatusOK), nil
			}
		} else {
			c.Next = func(r *http.Request) (int, error) {
				next.ServeHTTP(w, r)
				return http.StatusOK, nil
			}
		}
		if route {
			c.Pattern = r.Pattern
		}
		_ = p.Serve(w, r, c) // a ServeMux has no log of errors
	})
}
