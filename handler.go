package limit

import (
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
// panics if a rule by user has no [Options].Caller, and if one set made by [Rules]
// would cover several routes: if next is a ServeMux, or at the second call. It
// calls next after the wait of a [Queue], and releases what the request holds when
// next returns or panics.
//
// Rules that settle do so by what next has answered. Handler does not see what
// middleware around it answers when next has returned: put such middleware behind the
// rules, or put another set that settles around it. A handler that panics before it
// answers stays charged.
//
// Around a router the path has not been parsed yet, and [ByPathValue] finds no
// value there.
func (p *Policy) Handler(next http.Handler) http.Handler {
	p.mustAttach(next)
	if p.scope == scopeRoute && p.attached.Swap(true) {
		panic(&RuleError{Problem: "one set of rules covers two routes: write limit.Named(\"…\", rules…) for one quota of " +
			"both, limit.EachRoute(rules…) for a quota of each, or bind the set once for each route"})
	}
	return p.handler(next, onRoute)
}

// Middleware returns a handler for everything behind next: a group of routes, a
// router, or a whole server. It is middleware for chi and any other router:
//
//	router.Use(policy.Middleware)
//
// The route is not known where middleware runs, so the set must be [Named], and
// all requests share its quotas. Middleware panics otherwise.
func (p *Policy) Middleware(next http.Handler) http.Handler {
	if p.scope != scopeNamed {
		panic(&RuleError{Problem: "middleware covers many routes and knows none: write limit.Named(\"…\", rules…) for one quota " +
			"of all, or put the rules on each route with Policy.Handler"})
	}
	p.mustAttach(next)
	return p.handler(next, before)
}

// mustAttach panics if the policy cannot decide requests to next.
func (p *Policy) mustAttach(next http.Handler) {
	if v := reflect.ValueOf(next); next == nil || v.Kind() == reflect.Func && v.IsNil() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(&RuleError{Problem: "the handler behind the rules is nil"})
	}
	if _, router := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	}); router && p.scope != scopeNamed {
		panic(&RuleError{Problem: "a ServeMux has many routes: write limit.Named(\"…\", rules…) for one quota of all, " +
			"or put the rules on each route"})
	}
	if err := p.attach(place{}); err != nil {
		panic(err)
	}
}

// An exchange is a request of net/http and its response.
type exchange struct {
	w        http.ResponseWriter
	recorder *response.Recorder // around w, if this is the outermost set that settles by status
	r        *http.Request
	next     http.Handler
}

// The adapters of net/http: behind a router, and before it.
var (
	onRoute = &Adapter[exchange]{Route: exchange.route, Next: exchange.serve, Record: exchange.record}
	before  = &Adapter[exchange]{Route: exchange.none, Next: exchange.serve, Record: exchange.record}
)

func (p *Policy) handler(next http.Handler, adapter *Adapter[exchange]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, v := exchange{w: w, r: r, next: next}, p.current.Load()
		if v.settles && response.RecorderOf(r.Context(), w) == nil {
			e.recorder = response.Record(w)
			e.w = e.recorder.Writer()
		}
		_ = adapter.serve(v, w, r, e) // a ServeMux has no log of errors
	})
}

func (e exchange) route() (method, pattern string) { return "", e.r.Pattern }

func (e exchange) none() (method, pattern string) { return "", "" }

func (e exchange) record() *response.Recorder { return e.recorder }

// serve runs the handler. One that has written nothing is answered as net/http does it
// when the request ends, unless a framework around the rules writes an answer first.
func (e exchange) serve(r *http.Request) (status int, err error) {
	e.next.ServeHTTP(e.w, r)
	return http.StatusOK, nil
}
