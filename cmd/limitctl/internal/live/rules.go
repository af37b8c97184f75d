// Package live looks at the quotas of running programs in their Redis, by the rules that
// they have, and resets them. It decides with the library itself.
package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/typedkey"
	"github.com/routelimit/limit/stores/redisstore"
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
	store   *redisstore.Store
	options Options
	rules   []*Rule            // in the order of the policies
	stored  map[string][]*Rule // by the names of the policies in Redis
}

// A Rule is one of a policy.
type Rule struct {
	limit.Rule
	typedkey.Form
	Policy string
	stored string   // Policy as Redis has it
	larger []string // plans with more than the usual limit, from the lowest
	own    bool     // whether the plans have states of their own
}

// callTimeout bounds each call: an operator may be far away.
const callTimeout = 5 * time.Second

// New returns the limits of policies, which are valid. From now on, scripts that decide on the
// client write nothing. The error is about the names of the policies or the options.
func New(client redis.UniversalClient, policies []Policy, o Options) (l *Limits, err error) {
	defer func() {
		if problem := recover(); problem != nil { // of an option of the store
			l, err = nil, fmt.Errorf("%v", problem)
		}
	}()
	if err := (&clientip.Config{IPv6Prefix: o.IPv6Prefix}).Validate(); err != nil {
		return nil, err
	}
	reading := new(look)
	client.AddHook(reading)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(reading) }) // a store asks servers for their tokens
	}
	store := redisstore.New(client, &redisstore.Options{Prefix: o.Prefix, Secret: o.Secret, Spread: o.Spread, Timeout: callTimeout})
	l = &Limits{store: store, options: o, stored: make(map[string][]*Rule)}
	for _, p := range policies {
		stored := p.stored()
		if _, twice := l.stored[stored]; twice {
			return nil, fmt.Errorf("policy %q is there twice: name it once", p.Name)
		}
		l.stored[stored] = nil // of a policy that is only with others
		for _, r := range p.Rules.Rules() {
			rule, err := newRule(r, p.Name, stored, o.IPv6Prefix)
			if err != nil {
				return nil, fmt.Errorf("policy %q: %w", p.Name, err)
			}
			l.rules = append(l.rules, rule)
			l.stored[stored] = append(l.stored[stored], rule)
		}
	}
	return l, nil
}

func newRule(r limit.Rule, policy, stored string, ipv6Prefix int) (*Rule, error) {
	form, err := typedkey.Of(&r, ipv6Prefix)
	quota := r.Quota()
	rule := &Rule{Rule: r, Form: form, Policy: policy, stored: stored, own: quota.Refills()}
	byLimit := func(a, b string) int { return cmp.Or(cmp.Compare(r.Plans[a], r.Plans[b]), strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(r.Plans), byLimit) {
		if r.Plans[name] > r.Limit {
			rule.larger = append(rule.larger, name)
		}
	}
	return rule, err
}

// plans returns those that have states of their own, and "" for the usual state.
func (r *Rule) plans() []string {
	if !r.own {
		return []string{""}
	}
	return append([]string{""}, slices.Sorted(maps.Keys(r.Plans))...)
}

// charge returns the charge of a key of a caller on a plan, with the limit that programs have for
// it, and whether an override says that limit.
func (l *Limits) charge(r *Rule, key, plan string) (c core.Charge, overridden bool) {
	c = core.Charge{Policy: r.stored, Rule: r.Name, Key: key, ID: 1, Quota: r.Quota()}
	if most := r.Plans[plan]; most > 0 {
		given := r.WithLimit(most)
		c.Quota = given.Quota()
		if r.own {
			c.Variant = plan
		}
	}
	most := int64(0)
	if l.options.Override != nil {
		most = l.options.Override(r.Policy, r.Name, key)
	}
	if most <= 0 {
		return c, false
	}
	given := r.WithLimit(min(most, c.Quota.Algorithm.MaxLimit()))
	if quota := given.Quota(); quota.Validate() == nil { // programs keep the usual limit otherwise
		c.Quota = quota
	}
	return c, true
}

// Rules returns all rules, in the order of the policies.
func (l *Limits) Rules() []*Rule { return l.rules }

// Matching returns the rules of a policy and of a name, either of which may be "". The error
// says what to write instead.
func (l *Limits) Matching(policy, rule string) (found []*Rule, err error) {
	for _, r := range l.rules {
		if (policy == "" || r.Policy == policy) && (rule == "" || r.Name == rule) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0:
		var known []string
		for _, r := range l.rules {
			known = append(known, fmt.Sprintf("--policy %q --rule %s", r.Policy, r.Name))
		}
		return nil, fmt.Errorf("no %s: write one of %s", sought(policy, rule), strings.Join(known, ", "))
	case len(found) > 1 && policy != "" && rule != "":
		return nil, fmt.Errorf("policy %q has two rules %q, of limit.EachRoute and of the route: "+
			"write --rules and --on for one of them", policy, rule)
	}
	return found, nil
}

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
	for _, r := range l.stored[policy] {
		if r.Name != rule {
			continue
		}
		if _, known := r.Plans[variant]; variant == "" || known && r.own {
			return r, variant
		}
	}
	return nil, ""
}
