package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

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
	if observe := p.limiter.options.Observe; observe != nil {
		p.observe(observe, r, d)
	}
	setHeaders(w.Header(), &d)
	if !d.Allowed {
		return p.refuse(w, r, &c, d)
	}
	r = p.mark(r, d.route)
	if !p.leases && !p.settles && !p.queues {
		_, err := c.Next(r)
		return err
	}
	return p.hold(w, r, &c, d)
}

// hold calls Next for a request that may wait, holds leases, or is settled.
func (p *Policy) hold(w http.ResponseWriter, r *http.Request, c *Call, d Decision) error {
	status := http.StatusInternalServerError // of a panic
	defer func() { d.done(r, status) }()
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

// observe calls the program's function, and releases d if that panics, since
// nothing else knows d then.
func (p *Policy) observe(observe func(*http.Request, Decision, error), r *http.Request, d Decision) {
	observed := false
	defer func() {
		if !observed {
			d.Release()
		}
	}()
	observe(r, d, nil)
	observed = true
}

// Decide decides an HTTP request and does nothing else, for programs that answer
// it themselves: no headers, no waiting, and Observe is called for errors only.
// Call [Decision.Wait] on an admitted request if a rule is a [Queue], and
// [Decision.Release] when the request is done. An error wraps [ErrUndecided].
func (p *Policy) Decide(r *http.Request, c Call) (Decision, error) {
	ctx := r.Context()
	if p.byIP {
		p.limiter.noticeUntrustedProxy(r)
	}
	d, err := p.decide(ctx, context.WithoutCancel(ctx), p.route(&c), &source{limiter: p.limiter, request: r, call: &c}, false)
	if err != nil {
		p.limiter.failed(undecidedRequest, r, d, err)
		return d, err
	}
	d.reportLoss(r)
	return d, nil
}

// Marks let Serve find a request that is charged to one quota twice: the first
// requests of each route carry in their context what charged them, and so does
// a small sample of the others. A mark on each request would cost each three
// allocations.
const (
	firstMarks = 16
	markSample = 1024
)

type markKey struct{}

// A mark is one charged route of a request, and those before it.
type mark struct {
	route  *route
	before *mark
}

// mark warns if the request was charged to a quota of this route before, and
// returns the request to go on with.
func (p *Policy) mark(r *http.Request, route *route) *http.Request {
	before, _ := r.Context().Value(markKey{}).(*mark)
	for m := before; m != nil; m = m.before {
		if rule := route.shared(m.route); rule != "" {
			p.limiter.notices.chargedTwice(p.limiter.log(), route.name, rule)
			break
		}
	}
	switch left := route.marks.Load(); {
	case left > 0:
		route.marks.Add(-1)
	case before == nil && rand.Uint32N(markSample) != 0:
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), markKey{}, &mark{route, before}))
}

// shared returns a rule with which both routes charge one quota, or "".
func (r *route) shared(other *route) string {
	if r.name != other.name {
		return ""
	}
	for _, c := range r.charges {
		if slices.ContainsFunc(other.charges, func(o core.Charge) bool { return o.Rule == c.Rule }) {
			return c.Rule
		}
	}
	return ""
}

// A source has what a decision takes from a request or from the program: the
// values of keys and the costs.
type source struct {
	limiter *Limiter

	request *http.Request // of HTTP
	call    *Call

	keys  Keys // of the program
	cost  int64
	costs map[string]int64
}

// value returns the value of a key, or "" if there is none.
func (s *source) value(k *KeyResolver) string {
	if s.request == nil {
		return s.programValue(k)
	}
	r := s.request
	var v string
	switch k.kind {
	case byIP:
		return s.limiter.options.Proxies.key(r)
	case byUser:
		if s.call.User != nil {
			v = s.call.User()
		} else if s.limiter.options.User != nil {
			v = s.limiter.options.User(r)
		}
	case byHeader:
		v = r.Header.Get(k.name)
	case byCookie:
		if c, err := r.Cookie(k.name); err == nil {
			v = c.Value
		}
	case byQuery:
		if r.URL != nil && r.URL.RawQuery != "" {
			v = r.URL.Query().Get(k.name)
		}
	case byPath:
		if s.call.PathValue != nil {
			v = s.call.PathValue(k.name)
		} else {
			v = r.PathValue(k.name)
		}
	case byFunc:
		v = k.fn(r)
	}
	return strings.TrimSpace(v)
}

// costOf returns what the request costs of a rule.
func (s *source) costOf(rule *Rule, name string) (int64, error) {
	switch {
	case s.request == nil:
		if n, ok := s.costs[name]; ok {
			return validCost(n)
		}
		return validCost(s.cost)
	case s.call.Cost != 0:
		return validCost(s.call.Cost)
	case rule.Cost != nil:
		return validCost(rule.Cost(s.request))
	}
	return 1, nil
}

// validCost returns n as a cost. A negative cost is an error, since it would give
// back quota that was never taken. One above what any store counts is more than
// any rule allows, and is capped.
func validCost(n int64) (int64, error) {
	if n < 0 {
		return 0, fmt.Errorf("cost %d: write 0 or more", n)
	}
	return min(n, core.MaxCost), nil
}

// scratch holds the charges of one decision while it is made.
type scratch struct {
	charges [core.MaxCharges]core.Charge
	keys    [core.MaxCharges]string
	n       int // of them
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) put() {
	clear(s.charges[:s.n])
	clear(s.keys[:s.n])
	scratches.Put(s)
}

// decide decides for a caller that waits as long as the context waiting, with a
// call that ends with the context calling. If reserve is set, the decision can be
// settled.
func (p *Policy) decide(waiting, calling context.Context, r *route, from *source, reserve bool) (Decision, error) {
	d, err := p.take(calling, r, from, reserve)
	if err != nil {
		return Decision{}, err
	}
	d, _ = d.late(waiting)
	return d, nil
}

// take asks the store.
func (p *Policy) take(ctx context.Context, r *route, from *source, reserve bool) (Decision, error) {
	s := scratches.Get().(*scratch)
	defer s.put()
	charges, err := p.charges(s, r, from)
	if err != nil {
		return Decision{}, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	var began time.Time
	if p.leases {
		nameLeases(charges)
		began = time.Now()
	}
	decided, err := p.limiter.store.Take(ctx, r.name, charges)
	if err != nil {
		return Decision{}, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if decided.Mode == core.ModeOverflow {
		p.limiter.notices.overflowed(p.limiter, r.name)
	}
	d := newDecision(p, r, decided)
	if !d.Allowed {
		return d, nil
	}
	if p.leases {
		d.lease = p.newLease(r, charges, began)
	}
	if reserve || p.settles || p.queues {
		d.taken = newTaken(&d, charges)
	}
	return d, nil
}

// charges returns what a request is charged, in s.
func (p *Policy) charges(s *scratch, r *route, from *source) ([]core.Charge, error) {
	for i := range p.keys {
		s.keys[i] = p.keys[i].resolve(from)
	}
	s.n = copy(s.charges[:], r.charges)
	charges := s.charges[:s.n]
	for i := range charges {
		c := &charges[i]
		c.Key = s.keys[p.keyOf[i]]
		var err error
		if c.Cost, err = from.costOf(&p.set.rules[i], c.Rule); err != nil {
			return nil, fmt.Errorf("rule %q: %w", c.Rule, err)
		}
	}
	return charges, nil
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
