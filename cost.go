package limit

import (
	"context"
	"fmt"

	"github.com/routelimit/limit/core"
)

// A source has what a decision takes from a request or from the program: the
// values of keys, and the cost of each rule.
type source interface {
	keySource
	cost(rule *Rule) (int64, error)
}

// cost asks the rule what the request costs.
func (s httpSource) cost(rule *Rule) (int64, error) {
	if rule.Cost == nil {
		return 1, nil
	}
	return validCost(rule.Cost(s.call.Request))
}

// cost is the same for all rules: there is no request to ask of.
func (s keysSource) cost(*Rule) (int64, error) { return validCost(s.n) }

// validCost returns n as a cost. One below 0 is an error: it would give quota
// back that was never taken. One that no store counts is more than any rule
// allows, and so is the largest that they do.
func validCost(n int64) (int64, error) {
	if n < 0 {
		return 0, fmt.Errorf("cost %d: write 0 or more", n)
	}
	return min(n, core.MaxCost), nil
}

// TakeN is [Limiter.Take] for a request that costs n units of each rule. An n
// of 0 takes nothing and is always admitted; a negative one is an error. An n
// above what a rule can ever hold is refused with a RetryAfter of 0.
func (l *Limiter) TakeN(ctx context.Context, rules RuleSet, keys Keys, n int64) (Decision, error) {
	p, err := l.bound(rules, keys)
	if err != nil {
		return Decision{}, err
	}
	if _, err := validCost(n); err != nil {
		return Decision{}, &RuleError{Problem: err.Error()}
	}
	return p.decide(ctx, ctx, p.named, keysSource{keys, l.options.Proxies.IPv6Prefix, n})
}

// Peek returns what Take would return for a request that costs 1, but takes
// nothing: Allowed and RetryAfter are about that request, and Remaining is what
// is left without it. It changes nothing in the store.
func (l *Limiter) Peek(ctx context.Context, rules RuleSet, keys Keys) (Decision, error) {
	p, err := l.bound(rules, keys)
	if err != nil {
		return Decision{}, err
	}
	d, err := p.take(ctx, p.named, keysSource{keys, l.options.Proxies.IPv6Prefix, 0})
	if err != nil {
		return Decision{}, err
	}
	for i := range d.core.Outcomes() {
		// A cost of 0 fits where nothing is left, until there is more.
		if o := &d.core.Outcomes()[i]; o.Remaining == 0 {
			o.RetryAfter, o.MoreAfter = max(1, o.MoreAfter), 0
			d.core.Allowed = false
		}
	}
	return newDecision(p, p.named, d.core), nil
}

// costless returns an error if a rule asks requests for their cost.
func (p *Policy) costless() error {
	for _, r := range p.set.rules {
		if r.Cost != nil {
			return &RuleError{Rule: r.String(), Problem: "its Cost asks an HTTP request: say the cost with limit.Limiter.TakeN"}
		}
		if r.Settle != nil {
			return &RuleError{Rule: r.String(), Problem: "its Settle asks an HTTP response: " +
				"take with limit.Limiter.Reserve, and call limit.Decision.Settle"}
		}
	}
	return nil
}
