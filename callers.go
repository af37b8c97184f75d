package limit

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/grammar"
)

// callers is how the rules of a policy distinguish callers.
type callers struct {
	usual *terms
	plans map[string]*terms // nil if no rule has plans
	given *givenTerms       // by Options.Override

	defaultClass  uint8  // the index of the class "default"
	distinguishes bool   // whether there is anything to ask about a caller
	asksPlan      bool   // whether its plan matters
	asksClass     bool   // whether its class does
	all           uint16 // a bit for each rule, if all of them exempt callers

	exemptions  []exemption // of each rule; nil if no rule has any
	exemptsIP   bool        // whether a rule exempts addresses
	exemptsUser bool
}

// An exemption is [Rule].Exempt.
type exemption struct {
	prefixes     []netip.Prefix
	users, plans []string
	classes      uint16       // a bit for each
	charge       *core.Charge // in place of that of the rule, which it leaves as it is
}

func newCallers(l *Limiter, rules []Rule, waits bool) callers {
	none := make([]int64, len(rules))
	c := callers{usual: l.termsOf(rules, none), given: new(givenTerms), defaultClass: l.class(grammar.DefaultClass), all: 1<<len(rules) - 1}
	if len(rules) == core.MaxCharges {
		c.all = ^uint16(0)
	}
	names := make(map[string]bool)
	exempts, reserves := false, false
	for i := range rules {
		for name := range rules[i].Plans {
			names[name] = true
		}
		exempts = exempts || len(rules[i].Exempt) > 0
		reserves = reserves || len(rules[i].Reserve) > 0
	}
	for name := range names {
		limits := slices.Clone(none)
		for i := range rules {
			limits[i] = rules[i].Plans[name]
		}
		if c.plans == nil {
			c.plans = make(map[string]*terms)
		}
		t := l.termsOf(rules, limits)
		t.ownState(rules, name)
		c.plans[name] = t
	}
	c.asksPlan, c.asksClass = c.plans != nil, reserves || waits
	if exempts {
		c.exemptions = make([]exemption, len(rules))
	}
	for i := range c.exemptions {
		e := newExemption(l, &rules[i])
		c.exemptions[i] = e
		c.asksPlan = c.asksPlan || e.plans != nil
		c.asksClass = c.asksClass || e.classes != 0
		c.exemptsIP = c.exemptsIP || e.prefixes != nil
		c.exemptsUser = c.exemptsUser || e.users != nil
	}
	c.distinguishes = c.asksPlan || c.asksClass || exempts || l.options.Override != nil
	return c
}

func newExemption(l *Limiter, r *Rule) (e exemption) {
	for _, entry := range r.Exempt {
		switch kind, value := grammar.SplitExemption(entry); kind {
		case "ip":
			prefix, _ := exemptPrefix(value)
			e.prefixes = append(e.prefixes, prefix)
		case "user":
			e.users = append(e.users, value)
		case "plan":
			e.plans = append(e.plans, value)
		case "class":
			e.classes |= 1 << l.class(value)
		}
	}
	e.charge = &core.Charge{Rule: r.name() + quotaSuffix + quotaSuffix, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1, Window: core.MaxWindow}}
	return e
}

// callerProblems returns what a rule needs of the options to distinguish callers of HTTP
// requests.
func (l *Limiter) callerProblems(r *Rule, at place) (list []string) {
	exempts := func(kind string) bool {
		return slices.ContainsFunc(r.Exempt, func(entry string) bool { return strings.HasPrefix(entry, kind+" ") })
	}
	if (len(r.Plans) > 0 || exempts("plan")) && l.options.Plan == nil {
		list = append(list, "no plan resolver: set limit.Options.Plan")
	}
	if (len(r.Reserve) > 0 || exempts("class")) && l.options.Class == nil {
		list = append(list, "no class resolver: set limit.Options.Class")
	}
	if exempts("user") && !at.user && l.options.User == nil {
		list = append(list, "no user resolver: set limit.Options.User, or the User of your adapter")
	}
	return list
}

// A profile is what rules ask about the caller of a request. What they do not ask for
// is not filled in.
type profile struct {
	plan, class, user string
	address           netip.Addr
}

// profile returns that of an HTTP request.
func (p *version) profile(s *source) (from profile) {
	options := &p.limiter.options
	if p.asksPlan && options.Plan != nil {
		from.plan = options.Plan(s.request)
	}
	if p.asksClass && options.Class != nil {
		from.class = options.Class(s.request)
	}
	if p.exemptsIP {
		from.address = options.Proxies.ClientIP(s.request)
	}
	if p.exemptsUser {
		from.user = strings.TrimSpace(s.framework.user(s.request))
	}
	return from
}

// profile returns that of a request outside HTTP.
func (r *Request) profile(p *version) profile {
	from := profile{plan: r.Plan, class: r.Class}
	if p.exemptsIP {
		from.address = clientip.Parse(r.Keys["ip"])
	}
	if p.exemptsUser {
		from.user = strings.TrimSpace(r.Keys["user"])
	}
	return from
}

// distinguish makes the charges of a request, whose keys are known, those of its caller.
func (p *version) distinguish(s *scratch, route *route, from profile) {
	c := &s.caller
	if t := p.plans[from.plan]; t != nil {
		c.terms = t
	}
	if from.class != "" {
		c.class = p.limiter.class(from.class)
	}
	if p.exemptions != nil {
		p.exempt(c, &from)
	}
	if p.limiter.options.Override != nil {
		p.override(s, route)
	}
	if s.applied == *c && c.exempt == 0 {
		return
	}
	s.applied = *c
	for i := range s.charges {
		charge := &s.charges[i]
		if c.exempts(i) {
			key := charge.Key
			*charge = *p.exemptions[i].charge
			charge.Key = key
			continue
		}
		charge.Quota, charge.Reserve = c.terms.quotas[i], c.reserve(i)
		switch name := (*s.of)[i].Rule; {
		case c.terms.suffixes[i] == "":
			charge.Rule = name
		case name == p.names[i]:
			charge.Rule = c.terms.stored[i]
		default: // two sets on the route have different rules of this name
			charge.Rule = name + c.terms.suffixes[i]
		}
	}
}

// exempt finds the rules that exempt a caller.
func (p *version) exempt(c *caller, from *profile) {
	for i := range p.exemptions {
		e := &p.exemptions[i]
		if e.classes>>c.class&1 != 0 || slices.Contains(e.plans, from.plan) || slices.Contains(e.users, from.user) ||
			slices.ContainsFunc(e.prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(from.address) }) {
			c.exempt |= 1 << i
		}
	}
}

// override gives the caller the limits of its keys that have an override.
func (p *version) override(s *scratch, route *route) {
	of := givenLimits{terms: s.caller.terms}
	for i := range s.charges {
		if s.caller.exempts(i) {
			continue
		}
		said := p.limiter.options.Override(route.name, p.names[i], s.charges[i].Key)
		if said == 0 {
			continue
		}
		rule := &p.set.rules[i]
		limit := min(said, rule.algorithm().MaxLimit())
		given := rule.withLimit(limit)
		quota := given.quota()
		if quota.Validate() != nil {
			limit = 0
		}
		if limit != said {
			p.limiter.notices.badOverride(p.limiter.log(), route.name, p.names[i], said, cmp.Or(limit, s.caller.terms.limits[i]))
		}
		of.limits[i] = limit
	}
	if of.limits != [core.MaxCharges]int64{} {
		s.caller.terms = p.given.of(p, &of)
	}
}

// Key returns the key that a rule has for values of [Request].Keys: the one that
// [Options].Override receives. The rule is named as in a [Decision]. The error says which
// rules there are, or which key is missing.
func (p *Policy) Key(rule string, keys map[string]string) (string, error) {
	v := p.current.Load()
	i := slices.Index(v.names, rule)
	if i < 0 {
		return "", &RuleError{Problem: "no rule has the name " + strconv.Quote(rule) + ": write one of " + strings.Join(v.names, ", ")}
	}
	if err := v.set.rules[i].Key.missing(keys); err != nil {
		return "", err[0]
	}
	return v.set.rules[i].Key.resolve(func(k *KeyResolver) string {
		value, _ := p.limiter.valueOf(k, keys)
		return value
	}), nil
}

// appendLimits appends the limits of the rules that refuse a request to its document,
// where they depend on the caller.
func (d *Decision) appendLimits(b []byte) []byte {
	if d.policy == nil || d.policy.plans == nil && d.caller.terms == d.policy.usual {
		return b
	}
	separator := `,"limits":{"`
	for i := range d.core.Outcomes() {
		if d.refuses(i) {
			b = append(append(append(b, separator...), d.policy.names[i]...), `":`...)
			b = strconv.AppendInt(b, d.caller.terms.limits[i], 10)
			separator = `,"`
		}
	}
	if separator != `,"` {
		return b // no rule refuses
	}
	return append(b, '}')
}
