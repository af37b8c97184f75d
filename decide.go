package limit

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// decideHTTP is [Adapter.Decide] for every type of context.
func (p *Policy) decideHTTP(r *http.Request, from framework, cost int64) (Decision, error) {
	ctx := r.Context()
	if p.byIP {
		p.limiter.noticeProxies(r)
	}
	d, err := p.decide(ctx, context.WithoutCancel(ctx), p.route(from), &source{limiter: p.limiter, request: r, framework: from, cost: cost}, false)
	if err != nil {
		p.limiter.failed(undecidedRequest, r, d, err)
		return d, err
	}
	if d.lease != nil {
		d.reportLoss(r)
	}
	return d, nil
}

// A source has what a decision takes from a request or from the program: the
// values of keys and the costs.
type source struct {
	limiter *Limiter

	request   *http.Request // of HTTP
	framework framework

	keys  map[string]string // of the program
	costs map[string]int64

	cost int64 // of HTTP, 0 for that of the rules
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
		v = s.framework.user(r)
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
		v = s.framework.pathValue(r, k.name)
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
	case s.cost != 0:
		return validCost(s.cost)
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
	decided, err := p.limiter.store.Take(ctx, r.stored, charges)
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
	s.n = copy(s.charges[:], *r.charges.Load())
	charges := s.charges[:s.n]
	for i := range charges {
		c := &charges[i]
		c.Key = s.keys[p.keyOf[i]]
		var err error
		if c.Cost, err = from.costOf(&p.set.rules[i], p.names[i]); err != nil {
			return nil, fmt.Errorf("rule %q: %w", p.names[i], err)
		}
	}
	return charges, nil
}
