package limit

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// A Policy is a [RuleSet] bound to a [Limiter]. It is what adapters call; see
// [Limiter.Policy]. It is safe for concurrent use.
type Policy struct {
	limiter *Limiter
	set     RuleSet
	keys    []KeyResolver // the distinct resolvers of the rules
	keyOf   []int         // for each rule, the index of its resolver
	names   []string      // for each rule
	most    []int64       // for each rule, the units that it can hold
	header  string        // the value of RateLimit-Policy
	named   *route        // of a named policy
	leases  bool          // whether a rule is of Concurrency
	settles bool          // whether a rule has a Settle
	queues  bool          // whether a rule is of Queue

	mu     sync.RWMutex
	routes map[routeID]*route // of an unnamed one
}

// A route is a policy under the name that its quotas go by, with the charges
// of a request but for their keys and costs.
type route struct {
	policy  string
	charges []core.Charge
}

type routeID struct{ method, pattern string }

// unmatched is the one label of all requests that no route matched. Their
// paths are the client's, and without number.
const unmatched = "<unmatched>"

func newPolicy(l *Limiter, set RuleSet) *Policy {
	p := &Policy{limiter: l, set: set, routes: make(map[routeID]*route)}
	index := make(map[string]int)
	for _, r := range set.rules {
		text := r.Key.String()
		i, known := index[text]
		if !known || r.Key.uses(byFunc) {
			i = len(p.keys)
			index[text] = i
			p.keys = append(p.keys, r.Key)
		}
		p.keyOf = append(p.keyOf, i)
		p.names = append(p.names, r.name())
		p.leases = p.leases || r.Algorithm == Concurrency
		p.settles = p.settles || r.Settle != nil
		p.queues = p.queues || r.Algorithm == Queue
		q := r.quota()
		p.most = append(p.most, q.Capacity())
	}
	p.header = policyHeader(set.rules)
	if set.name != "" {
		p.named = p.newRoute(set.name)
	}
	return p
}

func (p *Policy) newRoute(name string) *route {
	r := &route{policy: p.set.bytes + name}
	for i, rule := range p.set.rules {
		q := rule.quota()
		if p.set.bytes != "" {
			q = lineQuota(q)
		}
		r.charges = append(r.charges, core.Charge{Rule: p.names[i], Quota: q, OnError: rule.OnStoreError})
	}
	return r
}

// route returns the route of a request. The program's patterns bound their
// number; methods are the client's where a route takes any.
func (p *Policy) route(method, pattern string) *route {
	if p.named != nil {
		return p.named
	}
	if pattern == "" {
		method, pattern = "", unmatched
	}
	id := routeID{knownMethod(method), pattern}
	p.mu.RLock()
	r := p.routes[id]
	p.mu.RUnlock()
	if r != nil {
		return r
	}
	name := id.pattern
	if id.method != "" {
		name = id.method + " " + id.pattern
	}
	p.mu.Lock()
	r, known := p.routes[id]
	if !known {
		r = p.newRoute(name)
		p.routes[id] = r
	}
	p.mu.Unlock()
	if !known {
		p.noticeDoubled(r) // a log may be slow
	}
	return r
}

const otherMethod = "OTHER"

// knownMethod folds the methods that clients invent into one.
func knownMethod(method string) string {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return otherMethod
}

// Decide decides a request, without answering it. The decision does not end
// with the request's context: a client that goes away cannot make a handler
// run uncounted. An admitted request still has to [Decision.Wait]; one whose
// turn would come after the deadline of its context is refused. When it is done,
// call [Decision.Release]. An error wraps [ErrUndecided].
func (p *Policy) Decide(call Call) (Decision, error) {
	ctx := call.Request.Context()
	d, err := p.decide(ctx, context.WithoutCancel(ctx), p.route(call.Method, call.Pattern),
		httpSource{&call, &p.limiter.options})
	if err != nil {
		p.limiter.failed(&p.limiter.notices.undecided, "limit: a request could not be decided", call.Request, d, err)
		return d, err
	}
	if observe := p.limiter.options.Observe; observe != nil {
		observed := false
		defer func() {
			if !observed { // it panicked, and nobody else will know d
				d.Release()
			}
		}()
		observe(call.Request, d, nil)
		observed = true
	}
	d.observe(call.Request)
	return d, nil
}

// Refuse returns the function in [Options].Refuse, for adapters.
func (p *Policy) Refuse() func(http.ResponseWriter, *http.Request, Decision) {
	return p.limiter.options.Refuse
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

// decide decides for a caller who waits as long as the context waiting, with a
// call that ends with the context calling.
func (p *Policy) decide(waiting, calling context.Context, r *route, from source) (Decision, error) {
	d, err := p.take(calling, r, from)
	if err != nil {
		return Decision{}, err
	}
	d, _ = d.late(waiting)
	return d, nil
}

func (p *Policy) take(ctx context.Context, r *route, from source) (Decision, error) {
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
	decided, err := p.limiter.store.Take(ctx, r.policy, charges)
	if err != nil {
		return Decision{}, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if decided.Mode == core.ModeOverflow && p.limiter.notices.overflow.due() {
		p.limiter.notices.overflow.warn(p.limiter.log(), "limit: more keys than MaxKeys: new ones share quotas", "policy", r.policy)
	}
	d := newDecision(p, r, decided)
	if d.Allowed && p.leases {
		d.lease = p.hold(r, charges, began)
	}
	if d.Allowed && (p.settles || p.queues) {
		d.taken = newTaken(&d, charges)
	}
	return d, nil
}

// charges returns what a request is charged, in s.
func (p *Policy) charges(s *scratch, r *route, from source) ([]core.Charge, error) {
	for i := range p.keys {
		s.keys[i] = p.keys[i].resolve(from)
	}
	s.n = copy(s.charges[:], r.charges)
	charges := s.charges[:s.n]
	for i := range charges {
		c := &charges[i]
		c.Key = s.keys[p.keyOf[i]]
		var err error
		if c.Cost, err = from.cost(&p.set.rules[i]); err != nil {
			return nil, fmt.Errorf("rule %q: %w", c.Rule, err)
		}
	}
	return charges, nil
}
