package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/excerpt"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/internal/terms"
	"github.com/routelimit/limit/rules"
)

// The packages adapter and operate reach these functions by package door, so that the
// documentation of this package is for the programs that limit requests.
func init() {
	door.Bind = (*Limiter).policy
	door.Serve = (*Policy).serve
	door.Decide = (*Policy).decide
	door.AnswerByOptions = (*Policy).answerByOptions
	door.Functions = func(l *Limiter) rules.Functions { return l.options.Functions }
	door.Document = func(status int, err error) []byte {
		var room [core.MaxCharges]string
		document := documentOf(status, err, room[:0])
		return document.Append(make([]byte, 0, response.ProblemSize))
	}

	door.Engine = func(l *Limiter) *engine.Engine { return &l.engine }
	door.Proxies = func(l *Limiter) Proxies { return l.options.Proxies }
	door.Policies = (*Limiter).policies
	door.Declared = (*Limiter).declaredNames
	door.Peek = (*Limiter).peekKey
	door.Account = (*Limiter).accountOfKey
	door.Reset = (*Limiter).resetKey
	door.Key = (*Policy).key
	door.Observe = (*Limiter).observe
	door.Compared = Decision.compared
	door.Change, door.Lift = (*Limiter).change, (*Limiter).lift
	door.Check = func(l *Limiter, ctx context.Context) error { return l.storeCheck().Problems(ctx) }
	door.Validate = func(l *Limiter, rules RuleSet) error {
		return errors.Join(l.validate(rules), l.check(rules, door.Place{}))
	}
}

// serve is Adapter.ServeRequest of package adapter.
func (p *Policy) serve(w http.ResponseWriter, r *http.Request, from door.Framework, given *Request) error {
	v := p.current.Load()
	if err := v.checkGiven(given); err != nil {
		return err
	}
	return v.layers.Get().(*layer).serve(w, r, from, given)
}

// decide is Adapter.Decide of package adapter.
func (p *Policy) decide(r *http.Request, from door.Framework, cost int64) (d Decision, err error) {
	var given *Request
	if cost != 0 {
		given = &Request{Cost: cost}
	}
	l := p.current.Load().layers.Get().(*layer)
	l.enter(r, from, given)
	if err = l.decide(false); err != nil {
		p.limiter.failed(undecidedRequest, r, Decision{}, err)
		return Decision{}, err
	}
	d = l.Decision
	d.loss = nil // Lost is about its own leases alone
	if d.of.Holds() {
		d.of.OnLoss(nil, l.reportLoss)
		l.shared = true
	}
	l.keep()
	l.leave()
	return d, nil
}

// policies is Policies of package operate.
func (l *Limiter) policies() iter.Seq2[string, RuleSet] {
	return func(yield func(string, RuleSet) bool) {
		l.mu.Lock()
		nameless := slices.Clone(l.nameless)
		l.mu.Unlock()
		for _, unnamed := range nameless { // in the order of declaration
			p := unnamed.Value()
			if p != nil && p.current.Load().first.Load() == nil && !yield("", p.current.Load().set) {
				return
			}
		}
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

// peekKey is Peek of package operate.
func (l *Limiter) peekKey(ctx context.Context, policy, rule, key, plan string) (RuleDecision, error) {
	of, i, err := l.find(policy, rule, key)
	if err != nil {
		return RuleDecision{}, err
	}
	run, terms := of.begin(key, plan)
	defer run.End()
	var d Decision
	if err := run.LookAt(ctx, i, &d.of); err != nil {
		return RuleDecision{}, err
	}
	d.decided(run, of.policy, of.route.name, terms)
	return d.rule(i), nil
}

// accountOfKey is Account of package operate.
func (l *Limiter) accountOfKey(ctx context.Context, policy, rule, key, plan string) (core.Account, error) {
	of, i, err := l.find(policy, rule, key)
	if err != nil {
		return core.Account{}, err
	}
	run, _ := of.begin(key, plan)
	defer run.End()
	return run.Account(ctx, i)
}

// begin begins a request in which all rules have one key.
func (of policyRoute) begin(key, plan string) (*engine.Run, *terms.Terms) {
	run := of.route.plan.Load().Begin()
	for n := range run.Charges {
		run.Charges[n].Key = key
	}
	caller := of.policy.distinguish(run, of.route, &profile{plan: plan})
	run.Caller.Exempt = 0
	return run, caller
}

// resetKey is Reset of package operate.
func (l *Limiter) resetKey(ctx context.Context, policy, rule, key string) error {
	of, i, err := l.find(policy, rule, key)
	if err != nil {
		return err
	}
	if r := &of.policy.list[i]; of.policy.rules[i].Charge.Quota.Leases() {
		return &rules.Error{Rule: r.String(), Problem: "requests in flight cannot be reset: their leases end with them"}
	}
	return l.reset(ctx, of.policy.states(of.route, i, key))
}

// find returns the policy of a name on its route, and the index of its rule, which has a
// key.
func (l *Limiter) find(policy, rule, key string) (found policyRoute, index int, err error) {
	var names, known []string
	for _, of := range l.policyRoutes() {
		names = append(names, of.route.name)
		if of.route.name != policy {
			continue
		}
		known = append(known, of.policy.names...)
		i := slices.Index(of.policy.names, rule)
		switch {
		case i < 0:
		case found.route == nil:
			found, index = of, i
		case found.route.stored != of.route.stored || found.route.variant(index) != of.route.variant(i):
			return found, 0, &rules.Error{Problem: fmt.Sprintf("policy %q has two different rules %q: give one of them a Name", policy, rule)}
		}
	}
	switch {
	case found.route != nil && key != "" && found.policy.list[index].Key.Kind() == grammar.Global:
		return found, 0, &rules.Error{Problem: fmt.Sprintf("rule %q of policy %q is global, and has no key %q: write \"\"", rule, policy, key)}
	case found.route != nil:
		return found, index, nil
	case known != nil:
		return found, 0, &rules.Error{Problem: fmt.Sprintf("policy %q has no rule %q: write one of %s", policy, rule, strings.Join(known, ", "))}
	case len(names) == 0:
		return found, 0, &rules.Error{Problem: fmt.Sprintf("no policy %q: no policy has a name, and no route has had a request", policy)}
	}
	return found, 0, &rules.Error{Problem: fmt.Sprintf("no policy %q, or its route has had no request: there are %s", policy, excerpt.Some(names))}
}

// declaredNames is Declared of package operate.
func (l *Limiter) declaredNames() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.named))
}

// key is Key of package operate.
func (p *Policy) key(rule string, keys map[string]string) (string, error) {
	v := p.current.Load()
	i := slices.Index(v.names, rule)
	if i < 0 {
		return "", &rules.Error{Problem: "no rule has the name " + strconv.Quote(rule) + ": write one of " + strings.Join(v.names, ", ")}
	}
	if err := v.list[i].Key.Missing(keys); err != nil {
		return "", err[0]
	}
	return v.list[i].Key.Resolve(func(k *KeyResolver) string {
		value, _ := k.Given(keys, p.limiter.options.Proxies.IPv6Prefix)
		return value
	}), nil
}

// compared is for Comparisons of package operate: it returns the outcomes of the rule
// that a shadow may replace and of the shadow, for each that was not enforced.
func (d Decision) compared() (pairs [][2]RuleDecision) {
	if d.policy == nil || d.of.Watched == 0 || d.GivenBack {
		return nil
	}
	for i := range d.policy.list {
		if !d.shadows(i) {
			continue
		}
		if old := slices.Index(d.policy.names, d.policy.list[i].Shadow.Replaces); old >= 0 {
			pairs = append(pairs, [2]RuleDecision{d.rule(old), d.rule(i)})
		}
	}
	return pairs
}

// observe is Observe of package operate.
func (l *Limiter) observe(observe func(*http.Request, Decision, error)) (stop func()) {
	return l.observers.Add(observe, l.engine.Timed.Store)
}

// notify shows a decision to the observers.
func (l *Limiter) notify(r *http.Request, d *Decision, err error) {
	for _, observe := range l.observers.All() {
		(*observe)(r, *d, err)
	}
}
