package limit

import (
	"net/http"
	"reflect"

	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/internal/tags"
	"github.com/routelimit/limit/rules"
)

// Handler returns a handler that calls next with the requests that the rules admit, and
// answers the others. It stands before one route, whose pattern names the quotas of a set
// without a name; a [Named] set may also stand before a group of routes, a router or a whole
// server. It is middleware for chi and any other router.
//
// Handler panics if a rule by user has no [Options].Caller, and if one set made by [Rules]
// would cover several routes. It calls next after the wait of a [Queue], and releases what
// the request holds when next returns or panics. Rules that settle do so by what next has
// answered. Around a router, [ByPathValue] finds no value yet.
func (p *Policy) Handler(next http.Handler) http.Handler {
	h, err := p.handler(next)
	if err != nil {
		panic(err)
	}
	return h
}

// handler returns an error if the policy cannot decide requests to next.
func (p *Policy) handler(next http.Handler) (http.Handler, error) {
	_, mux := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	})
	switch v := reflect.ValueOf(next); {
	case next == nil, (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil():
		return nil, &rules.Error{Problem: "the handler behind the rules is nil"}
	case p.scope != rules.ScopeNamed && (mux || v.MethodByName("Routes").IsValid()): // of chi, Gin or Echo
		return nil, &rules.Error{Problem: "a router has many routes: write limit.Named(\"…\", rules…) for one quota of all, or put the rules on each route"}
	}
	if err := p.attach(door.Place{}); err != nil {
		return nil, err
	}
	if p.scope == rules.ScopeRoute && p.attached.Swap(true) {
		return nil, &rules.Error{Problem: "one set of rules covers two routes: write limit.Named(\"…\", rules…) for one quota of " +
			"both, limit.EachRoute(rules…) for a quota of each, or bind the set once for each route"}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.current.Load().exchange(w, r, next, nil)
	}), nil
}

// Serve serves a request like the handler of [Policy.Handler], for a handler that knows
// more than the request says, such as one that has read the body:
//
//	policy.Serve(w, r, limit.Request{Cost: tokens, Keys: map[string]string{"model": m}}, next)
//
// Keys, Cost and Costs given come before what the rules would take from the HTTP request. With
// Settle or Hold, the handler behind it settles what it took: see [Decision.SettleCosts] of
// [DecisionFrom]. Next is called if the rules admit the request, and otherwise the request is
// answered, as by the handler. The error says what is wrong with the given request.
func (p *Policy) Serve(w http.ResponseWriter, r *http.Request, given Request, next http.Handler) error {
	v := p.current.Load()
	if err := v.checkGiven(&given); err != nil {
		return err
	}
	v.exchange(w, r, next, &given)
	return nil
}

func (p *version) exchange(w http.ResponseWriter, r *http.Request, next http.Handler, given *Request) {
	l := p.layers.Get().(*layer)
	l.handler = next
	_ = l.serve(w, r, (*exchange)(l), given) // a ServeMux has no log of errors
}

// An exchange is a layer of net/http.
type exchange layer

func (e *exchange) Route() (method, pattern string)               { return "", e.request.Pattern }
func (e *exchange) PathValue(r *http.Request, name string) string { return r.PathValue(name) }
func (e *exchange) Caller(door.Part) (answer string, asked bool)  { return "", false }
func (e *exchange) RPC() bool                                     { return false }

// Next runs the handler. One that has written nothing is answered as net/http does it
// when the request ends, unless a framework around the rules writes an answer first.
func (e *exchange) Next(r *http.Request) (status int, err error) {
	e.handler.ServeHTTP(e.w, r)
	return http.StatusOK, nil
}

func (e *exchange) Record() *response.Recorder {
	recorder := response.Record(e.w)
	e.w = recorder.Writer()
	return recorder
}

func (e *exchange) Answer(w http.ResponseWriter, r *http.Request, status int, err error) (answered bool, _ error) {
	return e.version.answerByOptions(w, r, status, err), err
}

// Mount registers the handlers in the fields of a struct on mux, by their tags:
//
//	type API struct {
//		Update http.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//		Login  http.HandlerFunc `route:"POST /login" limit:"5/1m per ip" policy:"login"`
//		User   http.HandlerFunc `route:"GET /users/{id}" limit:"10/1s per path id"`
//		Health http.HandlerFunc `route:"GET /health" limit:"-"`
//	}
//
// The route tag is a method and a path, as mux writes it. The limit tag has rules in the
// text grammar of [Parse], or "-" for a route without limits. The policy tag is the name of
// a [Named] set. A handler is an [http.Handler] or a func(http.ResponseWriter,
// *http.Request).
//
// If anything is wrong with the struct, Mount returns an error that lists all of it, and
// registers nothing. It panics if a route conflicts with one that mux already has.
func (l *Limiter) Mount(mux *http.ServeMux, api any) error { return tags.Mount(mux, api, l.mounted) }

// mounted returns a handler that limits next by the rules of a field. It adds to
// f what is wrong with the rules.
func (l *Limiter) mounted(f *tags.Field, next http.Handler) http.Handler {
	set, ok := f.Rules(l.options.Functions)
	if !ok {
		return nil
	}
	p, err := l.policy(set, &door.Place{Pattern: f.Pattern()})
	if err == nil && next != nil {
		next, err = p.handler(next)
	}
	f.Add(err)
	return next
}
