package limit

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Policies returns the policies that decide now, by the name that [Decision.Policy]
// returns, with their rules: those that are [Named], and each route that has had a
// request. They are sorted by name. A name comes twice if two sets are on one route.
func (l *Limiter) Policies() iter.Seq2[string, RuleSet] {
	return func(yield func(string, RuleSet) bool) {
		for _, p := range l.policyRoutes() {
			if !yield(p.route.name, p.policy.set) {
				return
			}
		}
	}
}

// policyRoutes returns the routes of all policies, sorted by name.
func (l *Limiter) policyRoutes() (list []policyRoute) {
	l.mu.Lock()
	for _, p := range l.named {
		v := p.current.Load()
		list = append(list, policyRoute{v, v.named})
	}
	for _, routes := range l.routes {
		list = append(list, routes...)
	}
	l.mu.Unlock()
	slices.SortStableFunc(list, func(a, b policyRoute) int {
		return cmp.Or(strings.Compare(a.route.name, b.route.name), cmp.Compare(a.route.number, b.route.number))
	})
	return list
}

// Peek returns the state of one key of a rule, as a request of cost 1 would find it,
// without taking anything: see [Policy.Peek], which asks all rules of a policy. The
// policy, the rule and the key are named as in a [Decision], and plan is that of the
// caller, if any. The limit is that of [Options].Override, if it returns one. For
// operators; it calls the store. The error says what is wrong with a name, or wraps
// [ErrUndecided].
func (l *Limiter) Peek(ctx context.Context, policy, rule, key, plan string) (RuleDecision, error) {
	of, i, err := l.find(policy, rule)
	if err != nil {
		return RuleDecision{}, err
	}
	p := of.policy
	run := of.route.plan.Load().Begin()
	defer run.End()
	for n := range run.Charges {
		run.Charges[n].Key = key
	}
	terms := p.distinguish(run, of.route, &profile{plan: plan})
	run.Caller.Exempt = 0
	var d Decision
	if err := run.LookAt(ctx, i, &d.of); err != nil {
		return RuleDecision{}, err
	}
	d.of.Outcomes()[i].Need(1 + d.of.Caller.Reserve(i))
	d.describe(p, of.route, terms)
	return d.rule(i), nil
}

// Reset makes the quota of one key of a rule full again: see [Policy.Reset], which resets
// all rules of a policy. The names are those of Peek. It resets the keys of all plans,
// global rules (whose key is "") too, and lifts a [Ban]. A rule of [Concurrency] cannot be
// reset, since its leases live on. The error says what is wrong with a name, or wraps
// [ErrUndecided].
func (l *Limiter) Reset(ctx context.Context, policy, rule, key string) error {
	of, i, err := l.find(policy, rule)
	if err != nil {
		return err
	}
	if r := &of.policy.set.rules[i]; r.leases() {
		return &RuleError{Rule: r.String(), Problem: "requests in flight cannot be reset: their leases end with them"}
	}
	return l.reset(ctx, of.policy.states(of.route, i, key))
}

// find returns the policy of a name on its route, and the index of its rule.
func (l *Limiter) find(policy, rule string) (found policyRoute, index int, err error) {
	var names, rules []string
	for _, of := range l.policyRoutes() {
		names = append(names, of.route.name)
		if of.route.name != policy {
			continue
		}
		rules = append(rules, of.policy.names...)
		i := slices.Index(of.policy.names, rule)
		switch {
		case i < 0:
		case found.route == nil:
			found, index = of, i
		case found.route.stored != of.route.stored || found.route.variant(index) != of.route.variant(i):
			return found, 0, &RuleError{Problem: fmt.Sprintf("policy %q has two different rules %q: give one of them a Name", policy, rule)}
		}
	}
	switch {
	case found.route != nil:
		return found, index, nil
	case rules != nil:
		return found, 0, &RuleError{Problem: fmt.Sprintf("policy %q has no rule %q: write one of %s", policy, rule, strings.Join(rules, ", "))}
	case len(names) == 0:
		return found, 0, &RuleError{Problem: fmt.Sprintf("no policy %q: no policy has a name, and no route has had a request", policy)}
	}
	return found, 0, &RuleError{Problem: fmt.Sprintf("no policy %q, or its route has had no request: there are %s", policy, someOf(names))}
}

// someOf lists names, and says how many it leaves out of a long list.
func someOf(names []string) string {
	const most = 20
	names = slices.Compact(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
