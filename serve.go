package limit

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/response"
)

// A Call says how a framework sees a request. Adapters make one for each request
// and pass it to [Policy.Serve]; see package adaptertest for what an adapter has
// to pass. Fields that a function does not use may be zero.
type Call struct {
	// Method and Pattern name the route: "POST" and "/update/:id". An empty
	// Pattern means that no route matched. Method is empty if the pattern says
	// it, or if the route takes any.
	Method, Pattern string

	// Everywhere says to [Limiter.Bind] that the rules cover every route of a
	// server, as an interceptor of gRPC does: a set made by [Rules] is an error.
	Everywhere bool

	// PathValue returns a part of the path. Nil means [http.Request.PathValue].
	PathValue func(name string) string

	// User returns the user. Nil means [Options].User.
	User func() string

	// Cost is what the request costs of each rule. 0 means what [Rule].Cost says.
	Cost int64

	// Next runs the handler with the request, and returns the status that it
	// answered with and the error of the framework, which Serve returns.
	Next func(*http.Request) (status int, err error)

	// Status returns the status that has been sent, or 0. Serve asks when Next
	// panics, for rules that settle by status. Nil means that a handler that panics
	// has answered with 500.
	Status func() int

	// Refuse and Fail are the program's answers to a request that is refused, or
	// could not be decided, in the form of the framework. Nil means
	// [Options].Refuse and [Options].Fail.
	Refuse func(Decision) error
	Fail   func(error) error

	// Answer is the framework's answer where the program has none: err is a
	// [*RefusedError], or wraps [ErrUndecided]. See [Problem]. Nil means that
	// Serve writes the problem details document.
	Answer func(err error) error
}

// Serve is the flow of every adapter. It decides a request, sets the headers,
// waits for the slot of a [Queue], and calls Next if the rules admit the request;
// otherwise it answers the request. When Next returns or panics, it settles what
// the request cost and releases its leases.
//
// The decision does not end with the request's context, so that a client that
// disconnects cannot make a handler run uncounted. If the client disconnects
// before its slot comes, Next is not called, the status is 499, and the error
// wraps that of the context.
//
// Serve returns the error of Next, Refuse, Fail or Answer. Where the answer came
// from [Options] or from Serve itself, it returns the [*RefusedError], or the error
// that wraps [ErrUndecided], for the log of the framework.
func (p *Policy) Serve(w http.ResponseWriter, r *http.Request, c Call) error {
	d, err := p.Decide(r, c)
	if err != nil {
		return p.fail(w, r, &c, err)
	}
	if p.leases {
		defer d.Release() // whatever panics before the handler's end is settled
	}
	if observe := p.limiter.options.Observe; observe != nil {
		observe(r, d, nil)
	}
	stacked := len(w.Header()[headerPolicy]) > 0
	setHeaders(w.Header(), &d)
	if !d.Allowed {
		return p.refuse(w, r, &c, d)
	}
	r, sampled := p.mark(r, d.route, stacked)
	if sampled && p.byUser && p.limiter.user(r, &c) == "" {
		defer func() { p.limiter.noticeLateUser(r, &c, d.Policy()) }()
	}
	if !p.leases && !p.settles && !p.queues {
		_, err := c.Next(r)
		return err
	}
	return p.hold(w, r, &c, d)
}

// hold calls Next for a request that may wait, holds leases, or is settled.
func (p *Policy) hold(w http.ResponseWriter, r *http.Request, c *Call, d Decision) error {
	status := 0
	defer func() {
		if status == 0 { // Next has panicked
			status = http.StatusInternalServerError
			if c.Status != nil {
				status = cmp.Or(c.Status(), status)
			}
		}
		d.done(r, status)
	}()
	if err := d.Wait(r.Context()); err != nil {
		status = statusClientClosed
		w.WriteHeader(status)
		return err
	}
	r = d.lossContext(r)
	var err error
	status, err = c.Next(r)
	return err
}

// statusClientClosed is what logs show for a client that disconnected while it
// waited. It is nginx's "client closed request"; no client reads it.
const statusClientClosed = 499

// Marks let Serve find a request that is charged to one quota twice: the first
// requests of each route carry in their context what charged them, and so does
// a small sample of the others. A mark on each request would cost each three
// allocations. If a response has headers of another policy already, and no marked
// request has come from there, the next requests of the limiter carry marks too.
const (
	firstMarks = 16
	markSample = 1024
)

type markKey struct{}

// A mark is one charged route of a request, and those before it.
type mark struct {
	policy *Policy
	route  *route
	before *mark
}

// mark warns if the request was charged to a quota of this route before. It returns
// the request to go on with, and whether it is one of those that carry a mark.
func (p *Policy) mark(r *http.Request, route *route, stacked bool) (marked *http.Request, sampled bool) {
	before, _ := r.Context().Value(markKey{}).(*mark)
	if stacked && !route.followed.Load() {
		if before != nil {
			route.followed.Store(true)
		} else {
			p.limiter.marks.Store(firstMarks)
		}
	}
	for m := before; m != nil; m = m.before {
		if rule := route.shared(m.route); rule != "" {
			p.limiter.notices.chargedTwice(p.limiter.log(), route.name, rule, m.policy, p)
			break
		}
	}
	switch {
	case route.marks.Load() > 0:
		route.marks.Add(-1)
	case p.limiter.marks.Load() > 0:
		p.limiter.marks.Add(-1)
	case before == nil && rand.Uint32N(markSample) != 0:
		return r, false
	}
	return r.WithContext(context.WithValue(r.Context(), markKey{}, &mark{p, route, before})), true
}

// shared returns a rule with which both routes charge one quota, or "".
func (r *route) shared(other *route) string {
	if r.stored != other.stored {
		return ""
	}
	others := *other.charges.Load()
	for _, c := range *r.charges.Load() {
		if slices.ContainsFunc(others, func(o core.Charge) bool { return o.Rule == c.Rule }) {
			return c.Rule
		}
	}
	return ""
}

// refuse answers a refused request.
func (p *Policy) refuse(w http.ResponseWriter, r *http.Request, c *Call, d Decision) error {
	refused := &RefusedError{Decision: d}
	switch refuse := p.limiter.options.Refuse; {
	case c.Refuse != nil:
		return c.Refuse(d)
	case refuse != nil:
		status, _ := Problem(refused)
		response.WithDefault(w, status, func(w http.ResponseWriter) { refuse(w, r, d) })
		return refused
	}
	return writeAnswer(w, c, refused)
}

// fail answers a request that could not be decided.
func (p *Policy) fail(w http.ResponseWriter, r *http.Request, c *Call, err error) error {
	setUndecidedHeaders(w.Header())
	switch fail := p.limiter.options.Fail; {
	case c.Fail != nil:
		return c.Fail(err)
	case fail != nil:
		response.WithDefault(w, http.StatusServiceUnavailable, func(w http.ResponseWriter) { fail(w, r, err) })
		return err
	}
	return writeAnswer(w, c, err)
}

// writeAnswer answers a request as the framework does, or with a document.
func writeAnswer(w http.ResponseWriter, c *Call, err error) error {
	if c.Answer != nil {
		return c.Answer(err)
	}
	status, body := Problem(err)
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	w.WriteHeader(status)
	w.Write(body)
	return err
}
