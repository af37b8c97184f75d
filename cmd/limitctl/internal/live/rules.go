// Package live looks at the quotas of running programs in their Redis, by the rules that
// they have, and resets them. It decides with the library itself.
package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/typedkey"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// A Policy is one that programs have.
type Policy struct {
	Name  string // as a Decision shows it: "api", or the route "POST /update"
	Rules limit.RuleSet
	Each  bool // the programs declare it by limit.EachRoute
}

// stored returns the name of the policy in Redis.
func (p *Policy) stored() string {
	if p.Each {
		return "each " + p.Name
	}
	return p.Name
}

// Options are those of the programs, as far as keys depend on them.
type Options struct {
	Prefix     string                               // of redisstore
	Secret     []byte                               // of redisstore; nil if there is none
	Spread     int                                  // of redisstore
	IPv6Prefix int                                  // of limit.Proxies
	Override   func(policy, rule, key string) int64 // nil if there are none; called concurrently
}

// Limits are the rules of programs on one Redis. They are safe for concurrent use.
type Limits struct {
	limiter  *limit.Limiter
	options  Options
	policies []*policy
	stored   map[string]*policy
}

// A policy is one with the name that it has in the limiter here: routes can be no names
// of policies.
type policy struct {
	Policy
	alias string
	rules []*Rule
}

// A Rule is one of a policy.
type Rule struct {
	limit.Rule
	typedkey.Form
	Policy string
	policy *policy
	larger []plan // plans with more than the usual limit, from the lowest
	own    bool   // whether the plans have states of their own
}

type plan struct {
	name  string
	limit int64
}

// callTimeout bounds each call: an operator may be far away.
const callTimeout = 5 * time.Second

// New returns the limits of policies. From now on, scripts that decide on the client write
// nothing. The error is about the policies or the options.
func New(client redis.UniversalClient, policies []Policy, o Options) (l *Limits, err error) {
	defer func() {
		if problem := recover(); problem != nil { // of an option
			l, err = nil, fmt.Errorf("%v", problem)
		}
	}()
	l = &Limits{options: o, stored: make(map[string]*policy)}
	reading := &look{texts: make(map[string]script)}
	client.AddHook(reading)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(reading) }) // a store asks servers for their tokens
	}
	aliases := make(map[string]*policy)
	// Not the guard that limit.New would add: it decides locally while Redis fails, and
	// an operator wants the error.
	store := refusals.New(renamed{redisstore.New(client, &redisstore.Options{
		Prefix: o.Prefix, Secret: o.Secret, Spread: o.Spread, Timeout: callTimeout,
	}), aliases})
	options := &limit.Options{
		Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "" }}, Log: slog.New(slog.DiscardHandler), Proxies: limit.Proxies{IPv6Prefix: o.IPv6Prefix},
	}
	if o.Override != nil {
		options.Override = func(alias, rule, key string) int64 {
			return o.Override(aliases[alias].Name, rule, key)
		}
	}
	l.limiter = limit.New(store, options)
	for i := range policies {
		p := &policy{Policy: policies[i], alias: fmt.Sprintf("p%d", i)}
		aliases[p.alias] = p
		if l.stored[p.stored()] != nil {
			return nil, fmt.Errorf("policy %q is there twice: name it once", p.Name)
		}
		l.stored[p.stored()] = p
		l.policies = append(l.policies, p)
		if err := l.bind(p); err != nil {
			return nil, fmt.Errorf("policy %q: %w", p.Name, err)
		}
	}
	return l, nil
}

// bind gives the limiter the rules of a policy, without what does not change the state
// of a key: who is exempt, and what is left to higher classes.
func (l *Limits) bind(p *policy) (err error) {
	list := p.Rules.Rules()
	if len(list) == 0 && p.Rules.Others() != nil {
		return nil // those are policies of their own
	}
	for i := range list {
		r := &list[i]
		r.Reserve, r.Exempt = nil, nil
		if _, ban := r.Algorithm.(limit.Ban); ban && r.Settle == (rules.Settlement{}) {
			r.Settle = rules.OnStatus(http.StatusUnauthorized) // a ban that only code strikes is valid
		}
	}
	if _, err = l.limiter.Policy(limit.Named(p.alias, list...)); err != nil {
		return err
	}
	for _, r := range list {
		form, err := typedkey.Of(&r, l.options.IPv6Prefix)
		if err != nil {
			return err
		}
		rule := &Rule{Rule: r, Form: form, Policy: p.Name, policy: p}
		switch r.Algorithm.(type) {
		case limit.TokenBucket, limit.LeakyBucket, limit.Queue:
			rule.own = true
		}
		for name, most := range r.Plans {
			if most > r.Limit {
				rule.larger = append(rule.larger, plan{name, most})
			}
		}
		slices.SortFunc(rule.larger, func(a, b plan) int {
			return cmp.Or(cmp.Compare(a.limit, b.limit), strings.Compare(a.name, b.name))
		})
		p.rules = append(p.rules, rule)
	}
	return nil
}

// renamed is a store in which policies have the names that programs gave them.
type renamed struct {
	core.Store
	policies map[string]*policy // by their aliases
}

func (s renamed) Take(ctx context.Context, asks []core.Ask) error {
	given := slices.Clone(asks)
	for i := range given {
		given[i].Charges = s.rename(given[i].Charges)
	}
	err := s.Store.Take(ctx, given)
	for i := range given {
		asks[i].Decision = given[i].Decision
	}
	return err
}

func (s renamed) Account(ctx context.Context, c core.Charge) (core.Account, error) {
	return core.AccountOf(ctx, s.Store, s.rename([]core.Charge{c})[0])
}

func (s renamed) Reset(ctx context.Context, charges []core.Charge) error {
	return s.Store.Reset(ctx, s.rename(charges))
}

func (s renamed) rename(charges []core.Charge) []core.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Policy = s.policies[charges[i].Policy].stored()
	}
	return charges
}

// Rules returns all rules, in the order of the policies.
func (l *Limits) Rules() (rules []*Rule) {
	for _, p := range l.policies {
		rules = append(rules, p.rules...)
	}
	return rules
}

// Matching returns the rules of a policy and of a name, either of which may be "". The error
// says what to write instead.
func (l *Limits) Matching(policy, rule string) (found []*Rule, err error) {
	var known []string
	for _, r := range l.Rules() {
		if (policy == "" || r.Policy == policy) && (rule == "" || r.Name == rule) {
			found = append(found, r)
		}
		known = append(known, fmt.Sprintf("--policy %q --rule %s", r.Policy, r.Name))
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no %s: write one of %s", sought(policy, rule), strings.Join(known, ", "))
	case len(found) > 1 && policy != "" && rule != "":
		return nil, fmt.Errorf("policy %q has two rules %q, of limit.EachRoute and of the route: "+
			"write --rules and --on for one of them", policy, rule)
	}
	return found, nil
}

// sought names what was looked for.
func sought(policy, rule string) string {
	switch "" {
	case rule:
		return fmt.Sprintf("policy %q", policy)
	case policy:
		return fmt.Sprintf("rule %q", rule)
	}
	return fmt.Sprintf("policy %q with a rule %q", policy, rule)
}

// stateOf returns the rule that a state in Redis belongs to, and the plan if the state
// is that of one plan.
func (l *Limits) stateOf(policy, rule, variant string) (r *Rule, plan string) {
	p := l.stored[policy]
	if p == nil {
		return nil, ""
	}
	for _, r := range p.rules {
		if r.Name != rule {
			continue
		}
		if _, known := r.Plans[variant]; variant == "" || known && r.own {
			return r, variant
		}
	}
	return nil, ""
}
