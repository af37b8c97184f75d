package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
)

// Take decides a request, and takes what it costs from every rule or nothing
// from any. The policy must be [Named].
//
// A refusal is a Decision, not an error. If a rule is a [Queue], call [Decision.Wait] on an
// admission; if one is of [Concurrency], call [Decision.Release] when the work is done. An
// error says what is wrong with the request, or wraps [ErrUndecided]. With UpTo, Take asks
// the store at most four times.
func (p *Policy) Take(ctx context.Context, r Request) (d Decision, err error) {
	err = p.current.Load().take(ctx, &d, &r)
	return d, err
}

func (p *version) take(ctx context.Context, d *Decision, r *Request) error {
	if err := p.check(r); err != nil {
		return err
	}
	run := p.named.plan.Load().Begin()
	t, err := p.fill(run, r)
	if err == nil {
		if r.UpTo {
			d.Taken, err = run.DecideUpTo(ctx, ctx, r.Cost, &d.of)
		} else if err = run.Decide(ctx, ctx, &d.of); d.of.Allowed && len(r.Costs) == 0 {
			d.Taken = min(max(1, r.Cost), core.MaxCost)
		}
		if err == nil {
			if r.Settle || r.Hold > 0 {
				run.Keep(&d.of)
			}
			d.decided(run, p, p.named.name, t)
		}
		if err == nil || !errors.Is(err, ErrSettled) {
			p.observed(d, err)
		}
	}
	run.End() // not deferred: a run is not used again after a panic
	return err
}

// observed reports a decision outside HTTP to Observe. It abandons d if a function of the
// program panics, since nothing else knows d then.
func (p *version) observed(d *Decision, err error) {
	switch {
	case err != nil:
		p.limiter.failed(undecidedRequest, nil, Decision{}, err)
		return
	case d.of.Holds():
		of := *d
		d.of.OnLoss(nil, func(loss error) { p.limiter.failed(lostLease, nil, of, loss) })
	}
	if p.limiter.observers.All() == nil {
		return
	}
	observed := false
	defer func() {
		if !observed {
			d.of.Abandon()
		}
	}()
	p.limiter.notify(nil, d, nil)
	observed = true
}

// Wait takes a request like [Policy.Take], but waits until the rules admit it, and for the
// slot of a [Queue]. A caller that waits holds nothing: each try takes from every rule or
// from none. Waits on one Limiter for one key are served by [Request].Class, and within a
// class in their order, among callers of the same limits and rules. Take and other processes
// do not queue, and may come first.
//
// A decision without an error is admitted. The error is that of ctx if it ends first, and a
// [*RefusedError] at once if the rules will certainly not admit the request before the
// deadline of ctx. Otherwise it says what is wrong with the request, or wraps [ErrUndecided].
func (p *Policy) Wait(ctx context.Context, r Request) (Decision, error) {
	return p.current.Load().wait(ctx, &r)
}

func (p *version) wait(ctx context.Context, r *Request) (d Decision, err error) {
	if r.UpTo {
		return d, &rules.Error{Problem: "Wait takes the full Cost: leave out UpTo, or call limit.Policy.Take"}
	}
	if p.bars {
		return d, &rules.Error{Problem: "Wait asks again after a refusal, and each is a strike of the ban: call limit.Policy.Take"}
	}
	if err := p.check(r); err != nil {
		return d, err
	}
	run := p.named.plan.Load().Begin()
	defer run.End()
	t, err := p.fill(run, r)
	if err != nil {
		return d, err
	}
	for i := range run.Charges {
		rule, cost, most := &p.rules[i], run.Charges[i].Cost, t.Capacities[i]-run.Caller.Reserve(i)
		if cost > most && rule.Charge.Quota.Spends() && !rule.Watches && !run.Caller.Exempts(i) {
			return d, &rules.Error{Rule: p.list[i].String(), Problem: fmt.Sprintf(
				"cost %d: the rule never has room for more than %d: write less", cost, most)}
		}
	}
	taken := min(max(1, r.Cost), core.MaxCost)
	if err = run.Wait(ctx, p.limiter.detached(ctx), nil, &d.of); err == nil && d.of.Allowed {
		if r.Settle || r.Hold > 0 {
			run.Keep(&d.of)
		}
		if _, err = d.of.WaitForSlot(ctx); err != nil {
			d.of.Release()
		}
	}
	if err != nil {
		if errors.Is(err, ErrUndecided) {
			p.observed(&d, err)
		}
		return Decision{}, err
	}
	d.decided(run, p, p.named.name, t)
	p.observed(&d, nil)
	if !d.Allowed {
		return Decision{}, &RefusedError{Decision: d}
	}
	if len(r.Costs) == 0 {
		d.Taken = taken
	}
	return d, nil
}

// Peek reports the outcome of a request of cost 1 without taking anything:
// Allowed and RetryAfter are those of that request, and Remaining is what is left
// without it. It changes nothing in the store. For [Distinct], that is a request with a
// new value.
func (p *Policy) Peek(ctx context.Context, r Request) (d Decision, err error) {
	if r.Cost > 1 || r.Costs != nil || r.UpTo || r.Settle || r.Hold != 0 {
		return d, &rules.Error{Problem: "Peek reports the outcome of a request of cost 1: leave out Cost, Costs, UpTo, Settle and Hold"}
	}
	v := p.current.Load()
	if err := v.check(&Request{Cost: 1, Settle: true}); err != nil {
		return d, err
	}
	run := v.named.plan.Load().Begin()
	defer run.End()
	t, err := v.fill(run, &r)
	if err == nil {
		err = run.Look(ctx, &d.of)
	}
	if err != nil {
		return Decision{}, err
	}
	d.decided(run, v, v.named.name, t)
	return d, nil
}

// Reset makes the quotas of keys full again, such as those of a user that was locked out
// and has proved its identity. Global rules and rules of [Concurrency] stay as they are; a
// policy without others is an error. Do not settle what was taken before: its
// units would come back twice. After an error that wraps [ErrUndecided], some of the rules
// may be reset; Reset may be repeated.
func (p *Policy) Reset(ctx context.Context, keys map[string]string) error {
	return p.current.Load().reset(ctx, keys)
}

func (p *version) reset(ctx context.Context, keys map[string]string) error {
	if err := cmp.Or(p.check(&Request{Cost: 1, Settle: true}), p.set.Missing(keys)); err != nil {
		return err
	}
	value := func(k *KeyResolver) string {
		v, _ := k.Given(keys, p.limiter.options.Proxies.IPv6Prefix)
		return v
	}
	var charges []core.Charge
	for i, rule := range p.list {
		if rule.Key.Kind() != grammar.Global && !p.rules[i].Charge.Quota.Leases() {
			charges = append(charges, p.states(p.named, i, rule.Key.Resolve(value))...)
		}
	}
	if charges == nil && !p.unfilled {
		return &rules.Error{Problem: "Reset resets neither global rules nor concurrency, and this policy has no other: write a rule with a key"}
	}
	return p.limiter.reset(ctx, charges)
}

// states returns a charge for each state of a key of a rule: its own, and those of callers
// on plans.
func (p *version) states(route *route, rule int, key string) (charges []core.Charge) {
	plan := route.plan.Load()
	charges = append(charges, plan.Charge(rule, key, &p.usual.Terms))
	for _, t := range p.plans {
		c := plan.Charge(rule, key, &t.Terms)
		if !slices.ContainsFunc(charges, func(o core.Charge) bool { return o.Variant == c.Variant }) {
			charges = append(charges, c)
		}
	}
	return charges
}

// reset makes states full again, as many as one call may name at a time.
func (l *Limiter) reset(ctx context.Context, charges []core.Charge) error {
	for some := range slices.Chunk(charges, core.MaxCharges) {
		if err := l.engine.Store.Reset(ctx, some); err != nil {
			return fmt.Errorf("%w: reset of rule %q: %w", ErrUndecided, some[0].Rule, err)
		}
		for i := range some {
			l.engine.Refilled(&some[i])
		}
	}
	return nil
}
