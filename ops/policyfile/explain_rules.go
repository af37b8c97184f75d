package policyfile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/stores/memstore"
)

// rules explains each rule of a policy.
func (e *explanation) rules(policy *policy, r *http.Request) {
	d := e.decide(policy.set, r)
	if d.err != nil {
		for _, err := range leaves(e.placed(d.err)) {
			if wrong := new(Error); errors.As(err, &wrong) {
				err = errors.New(wrong.place() + ": " + wrong.Problem)
			}
			e.line("  not valid with these options: %v", err)
		}
		return
	}
	for i, rule := range policy.set.Rules() {
		place := policy.own.Errorf(i, "here")
		e.line("  %s (%s)", place.Rule, e.source.at(policy.rules.at(place.Offset)))
		if entry := e.exemption(&rule); entry != "" {
			e.line("    exempt:  by %s: the rule neither charges nor refuses the request", entry)
			continue
		}
		key, _ := grammar.ParseKey(rule.Key.String())
		e.line("    key:     %s", e.key(key, r))
		if i < len(d.rules) {
			e.line("    limit:   %s", e.limit(&rule, &d, i))
			if len(rule.Reserve) > 0 {
				e.line("    reserve: %s", e.reserve(&rule, d.reserves[d.rules[i].Name], d.rules[i].Capacity))
			}
		}
		e.line("    refused: %s", e.refused(&rule))
		e.line("    outage:  %s", rule.OnStoreError)
	}
}

// exemption returns the entry of a rule that exempts the request, or "".
func (e *explanation) exemption(rule *limit.Rule) string {
	for _, entry := range rule.Exempt {
		kind, value := grammar.SplitExemption(entry)
		matches := false
		switch kind {
		case "ip":
			prefix, err := netip.ParsePrefix(value)
			if err != nil {
				address, _ := netip.ParseAddr(value)
				prefix = netip.PrefixFrom(address, address.BitLen())
			}
			matches = prefix.Contains(e.address)
		case "user":
			matches = value == e.user
		case "plan":
			matches = value == e.plan
		case "class":
			matches = value == e.class
		}
		if matches {
			return entry
		}
	}
	return ""
}

// limit says which limit of a rule applies, and why.
func (e *explanation) limit(rule *limit.Rule, d *decided, i int) string {
	usual, why := rule.Limit, ""
	switch n, ok := rule.Plans[e.plan]; {
	case len(rule.Plans) == 0:
	case ok:
		usual, why = n, ": plan "+e.plan
	case e.plan == "":
		why = ": the request has no plan"
	default:
		why = ": the rule has no limit for plan " + e.plan
	}
	text := fmt.Sprintf("%d%s", usual, why)
	if applied := d.rules[i].Limit; e.options.Override != nil && e.options.Override(d.policy, d.rules[i].Name, d.rules[i].Key) != 0 {
		text = fmt.Sprintf("%d: an override of the key; without it %s", applied, text)
	}
	return text
}

// reserve says which units of a rule are kept from the class of the request.
func (e *explanation) reserve(rule *limit.Rule, units, capacity int64) string {
	var above []string
	for _, class := range e.options.Classes[:slices.Index(e.options.Classes, e.class)] {
		if rule.Reserve[class] > 0 {
			above = append(above, class)
		}
	}
	if len(above) == 0 {
		return "nothing is kept from class " + e.class
	}
	return fmt.Sprintf("%d of %d units for %s: the request is of class %s", units, capacity, strings.Join(above, " and "), e.class)
}

// key describes the key that requests share a quota by.
func (e *explanation) key(k grammar.Key, r *http.Request) string {
	switch k.Kind {
	case grammar.Global:
		return "all requests of the policy"
	case grammar.Func:
		return "the function " + k.Name + " of the program"
	case grammar.And:
		var parts []string
		for _, part := range k.Parts {
			parts = append(parts, e.key(part, r))
		}
		return strings.Join(parts, " and ")
	case grammar.Or:
		for _, part := range k.Parts {
			if text := e.key(part, r); !strings.HasSuffix(text, noValue) {
				return text
			}
		}
		return k.String() + noValue
	}
	set, err := limit.Parse("1/1m per " + k.String())
	if err != nil {
		return err.Error()
	}
	if d := e.decide(limit.Named("key", set.Rules()...), r); len(d.rules) == 1 && d.rules[0].Key != "" {
		return k.String() + " " + quoted(d.rules[0].Key)
	}
	return k.String() + noValue
}

const noValue = ", which the request does not have: all such requests share one quota"

// decided is how a set decides a request on a store without state.
type decided struct {
	policy   string
	reserves map[string]int64 // that the request leaves to higher classes, by rule
	rules    []limit.RuleDecision
	err      error
}

// decide returns what a set charges for a request.
func (e *explanation) decide(set limit.RuleSet, r *http.Request) (d decided) {
	store := &recorder{Store: memstore.New(nil), reserves: make(map[string]int64)}
	policy, err := checker.Bind(limit.New(store, &e.options), "", set)
	if err != nil {
		return decided{err: err}
	}
	decision, err := checker.Decide(policy, r, struct{}{}, 0)
	if err != nil {
		return decided{err: err}
	}
	defer decision.Release()
	return decided{decision.Policy(), store.reserves, decision.Rules(), nil}
}

// checker decides requests to explain them.
var checker = &limit.Adapter[struct{}]{
	Route: func(struct{}) (method, pattern string) { return "", "" },
	Next:  func(struct{}, *http.Request) (status int, err error) { return http.StatusOK, nil },
}

// A recorder keeps the reserves of a request.
type recorder struct {
	core.Store
	reserves map[string]int64
}

func (s *recorder) Take(ctx context.Context, asks []core.Ask) error {
	for i := range asks {
		for _, c := range asks[i].Charges {
			s.reserves[c.Rule] = c.Reserve
		}
	}
	return s.Store.Take(ctx, asks)
}

// refused says what a request meets that a rule refuses.
func (e *explanation) refused(rule *limit.Rule) string {
	r := rule.OnRefusal
	if r.Status == 0 && r.Wait == 0 && r.Redirect == "" && !r.Degrade && !r.Mark {
		r = e.options.OnRefusal
	}
	text := "answered with 429"
	switch {
	case rule.Shadow != nil && rule.Shadow.Enforced == 0:
		return "nothing, since the rule only watches"
	case r.Mark:
		return "admitted, and marked"
	case r.Redirect != "":
		text = "redirected to " + r.Redirect
	case r.Degrade:
		text = "answered by a degraded response"
	case r.Status != 0:
		text = fmt.Sprintf("answered with %d", r.Status)
	}
	if r.Wait > 0 {
		text = fmt.Sprintf("waits up to %v, and is then %s", r.Wait, text)
	}
	if rule.Shadow != nil {
		text += fmt.Sprintf(", for %d%% of the keys; the rule watches the others", rule.Shadow.Enforced)
	}
	return text
}
