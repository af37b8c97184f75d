package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/routelimit/limit/core"
)

// A Request is what a policy decides outside HTTP: in a job, a consumer, an RPC.
type Request struct {
	// Keys has a value for each key that the rules name, as the text grammar
	// writes it:
	//
	//	map[string]string{"ip": "203.0.113.9", "user": "alice", "header X-API-Key": "k1"}
	//
	// An address may have a port, and the name of a header any case. "" means that
	// the request has no such key; all requests without it share one quota.
	Keys map[string]string

	// Cost is what the request costs of each rule. 0 means 1.
	Cost int64

	// Costs is what the request costs of single rules, by their names, where
	// that differs from Cost. A cost of 0 passes its rule and takes nothing.
	Costs map[string]int64

	// Plan and Class are those of the caller, as Plan and Class of [Options] return them
	// for an HTTP request.
	Plan, Class string

	// UpTo takes fewer units than Cost if there are fewer, but at least one, and
	// as many of each rule. [Decision].Taken says how many. It does not go
	// together with Costs, and is for [Policy.Take] and [Policy.Reserve].
	UpTo bool
}

// Take decides a request, and takes what it costs from every rule or nothing
// from any. The policy must be [Named].
//
// A refusal is a Decision, not an error. A slot in a [Queue] that would come
// after the deadline of ctx is a refusal too. If a rule is a Queue, call
// [Decision.Wait] on an admission; if one is of [Concurrency], call
// [Decision.Release] when the work is done. An error says what is wrong with the
// request, or wraps [ErrUndecided].
//
// With UpTo, Take asks the store at most four times: for Cost, and after each
// refusal for what was left then.
func (p *Policy) Take(ctx context.Context, r Request) (d Decision, err error) {
	err = p.current.Load().takeRequest(ctx, &d, &r, false)
	return d, err
}

// Reserve takes a request like [Policy.Take], for work whose true cost is known
// only afterwards: bytes, tokens of a language model, rows of a query. Cost is
// the most that it may be, and [Decision.Settle] corrects it:
//
//	d, err := policy.Reserve(ctx, limit.Request{Keys: keys, Cost: 4_000})
//	…
//	err = d.Settle(ctx, used)
//
// A reservation that is never settled stays taken, so that a process that dies
// gives nothing away. Rules of [Concurrency] are released, not settled.
func (p *Policy) Reserve(ctx context.Context, r Request) (d Decision, err error) {
	err = p.current.Load().takeRequest(ctx, &d, &r, true)
	return d, err
}

func (p *version) takeRequest(ctx context.Context, d *Decision, r *Request, reserve bool) error {
	if err := p.check(r, !reserve); err != nil {
		return err
	}
	s := p.named.scratch()
	defer p.named.put(s)
	err := p.chargeRequest(s, r)
	switch {
	case err != nil:
		return err
	case r.UpTo:
		err = p.takeUpTo(ctx, d, s, r.Cost, reserve)
	default:
		err = p.decide(ctx, ctx, d, p.named, s, reserve)
		if d.Allowed && len(r.Costs) == 0 {
			d.Taken = min(cmp.Or(r.Cost, 1), core.MaxCost)
		}
	}
	if reserve && d.Allowed {
		d.taken.reserved = true
		p.limiter.reserved.Add(1)
	}
	p.observed(d, err)
	return err
}

// observed reports a decision outside HTTP to Observe.
func (p *version) observed(d *Decision, err error) {
	switch observers := p.limiter.observers.Load(); {
	case err != nil && errors.Is(err, ErrUndecided):
		p.limiter.failed(undecidedRequest, nil, *d, err)
	case observers != nil:
		p.observe(*observers, d)
	}
	if d.lease != nil {
		d.reportLoss(nil)
	}
}

// observe calls the program's functions, and releases d if one panics, since nothing
// else knows d then.
func (p *version) observe(observers []*observer, d *Decision) {
	observed := false
	defer func() {
		if !observed {
			d.Release()
		}
	}()
	notify(observers, nil, *d, nil)
	observed = true
}

// upToTries is how often a request with UpTo asks the store at most.
const upToTries = 4

// takeUpTo asks for less after each refusal: for what the store said was left,
// and at last for one. Each time it takes from every rule or from none, so it
// never takes more than there is. Where others take in between, it takes fewer
// units than it could have.
func (p *version) takeUpTo(ctx context.Context, d *Decision, s *scratch, cost int64, reserve bool) error {
	charges := s.charges
	counts := func(i int) bool { return !charges[i].Alone && !p.set.rules[i].noQuota() && !s.caller.exempts(i) }
	for i, most := range s.caller.terms.capacities {
		if counts(i) {
			cost = min(cost, max(1, most-charges[i].Reserve))
		}
	}
	var watched firstOutcomes
	for try := 1; ; try++ {
		for i := range charges {
			if (try == 1 || !charges[i].Alone) && !s.caller.exempts(i) {
				charges[i].Cost = cost
			}
		}
		*d = Decision{}
		if err := p.take(ctx, d, p.named, s, reserve); err != nil {
			return err
		}
		watched.keep(d, charges, reserve || p.settles)
		if d.Allowed || cost == 1 {
			// A slot that comes too late was taken, and must not be tried again.
			if *d, _ = d.late(ctx); d.Allowed {
				d.Taken = cost
			}
			return nil
		}
		left := cost - 1 // strictly fewer, whatever the store says
		for i, o := range d.core.Outcomes() {
			if counts(i) {
				left = min(left, o.Remaining-charges[i].Reserve)
			}
		}
		if cost = max(1, left); try+1 >= upToTries {
			cost = 1
		}
	}
}

// Peek reports the outcome of a request of cost 1 without taking anything:
// Allowed and RetryAfter are those of that request, and Remaining is what is left
// without it. It changes nothing in the store. For [Distinct], that is a request with a
// new value.
func (p *Policy) Peek(ctx context.Context, r Request) (Decision, error) {
	return p.current.Load().peek(ctx, &r)
}

func (p *version) peek(ctx context.Context, r *Request) (Decision, error) {
	if r.Cost > 1 || r.Costs != nil || r.UpTo {
		return Decision{}, &RuleError{Problem: "Peek reports the outcome of a request of cost 1: leave out Cost, Costs and UpTo"}
	}
	if err := p.check(&Request{Cost: 1}, false); err != nil {
		return Decision{}, err
	}
	s := p.named.scratch()
	defer p.named.put(s)
	if err := p.chargeRequest(s, r); err != nil {
		return Decision{}, err
	}
	var d Decision
	if err := p.take(ctx, &d, p.named, s.free(), false); err != nil {
		return Decision{}, err
	}
	for i := range d.core.Outcomes() {
		if !askForOne(&d.core.Outcomes()[i], s.charges[i].Reserve) {
			d.core.Allowed = d.core.Allowed && d.core.Alone(i)
		}
	}
	return newDecision(p, p.named, s.caller, d.keys, d.core), nil
}

// askForOne turns the outcome of a cost of 0, which fits where nothing is left, into that
// of a cost of 1, and reports whether that fits too.
func askForOne(o *core.Outcome, reserve int64) bool {
	if o.Remaining <= reserve && o.Fits() {
		o.RetryAfter, o.MoreAfter = max(1, o.MoreAfter), 0
		return false
	}
	return true
}

// Reset makes the quotas of keys full again, such as those of a user that was
// locked out and has proved its identity. Global rules stay as they are, and so do
// rules of [Concurrency], whose leases live on.
//
// Do not settle a reservation that was made before the reset: its units would
// come back twice. Reset may be repeated. A policy without rules to reset is an
// error. An error that wraps [ErrUndecided] means that the store failed, and that
// some of the rules may be reset already.
func (p *Policy) Reset(ctx context.Context, keys map[string]string) error {
	return p.current.Load().reset(ctx, keys)
}

func (p *version) reset(ctx context.Context, keys map[string]string) error {
	if err := cmp.Or(p.check(&Request{Cost: 1}, false), p.missing(keys)); err != nil {
		return err
	}
	value := func(k *KeyResolver) string {
		v, _ := p.limiter.valueOf(k, keys)
		return v
	}
	done := false
	for i, rule := range p.set.rules {
		if rule.Key.kind == everyone || rule.leases() {
			continue
		}
		key := rule.Key.resolve(value)
		for _, name := range p.stateNames(i) {
			if err := p.limiter.store.Reset(ctx, p.named.stored, name, key); err != nil {
				return fmt.Errorf("%w: reset of rule %q: %w", ErrUndecided, p.names[i], err)
			}
			p.limiter.refilled(p.named.stored, name, key)
		}
		done = true
	}
	if !done {
		return &RuleError{Problem: "Reset resets neither global rules nor concurrency, and this policy has no other: write a rule with a key"}
	}
	return nil
}

// check returns what is wrong with a request, apart from its keys: missing does. If
// it is not reserved, rules that ask responses for their cost are wrong too.
func (p *version) check(r *Request, taken bool) error {
	if p.named == nil {
		return &RuleError{Problem: "outside HTTP a policy needs a name: write limit.Named(\"…\", rules…)"}
	}
	if p.costs && r.Cost == 0 {
		if err := p.costless(r.Costs); err != nil {
			return err
		}
	}
	if _, err := validCost(r.Cost); err != nil {
		return &RuleError{Problem: err.Error()}
	}
	switch {
	case r.UpTo && r.Cost < 1:
		return &RuleError{Problem: "UpTo needs a Cost: write how many units to take at most"}
	case r.UpTo && p.bars:
		return &RuleError{Problem: "UpTo asks again after a refusal, and each is a strike of the ban: leave out UpTo"}
	case r.UpTo && len(r.Costs) > 0:
		return &RuleError{Problem: "UpTo takes as many units of each rule: leave out Costs"}
	}
	if len(r.Costs) > 0 {
		if err := p.validCosts(r.Costs); err != nil {
			return err
		}
	}
	if taken && p.settles {
		return p.settleless()
	}
	return nil
}

func (p *version) validCosts(costs map[string]int64) error {
	var errs []error
	for name, n := range costs {
		if !slices.Contains(p.names, name) {
			errs = append(errs, &RuleError{Problem: fmt.Sprintf("Costs[%q]: no rule has that name: write one of %s",
				name, strings.Join(p.names, ", "))})
		}
		if _, err := validCost(n); err != nil {
			errs = append(errs, &RuleError{Problem: fmt.Sprintf("Costs[%q]: %v", name, err)})
		}
	}
	return errors.Join(errs...)
}

// costless returns an error if a rule asks HTTP requests for their cost, and
// costs does not say it.
func (p *version) costless(costs map[string]int64) error {
	for i := range p.set.rules {
		r := &p.set.rules[i]
		if _, said := costs[p.names[i]]; r.Cost != (Cost{}) && !said {
			return &RuleError{Rule: r.String(), Problem: "Cost is a function of an HTTP request: set limit.Request.Cost"}
		}
	}
	return nil
}

// settleless returns an error if a rule asks HTTP responses for their cost.
func (p *version) settleless() error {
	for i := range p.set.rules {
		if r := &p.set.rules[i]; r.Settle != (Settlement{}) {
			return &RuleError{Rule: r.String(), Problem: "Settle is a function of an HTTP response: " +
				"call limit.Policy.Reserve, and then limit.Decision.Settle"}
		}
	}
	return nil
}
