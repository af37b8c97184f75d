package limit

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/rules"
)

// A route is a policy on one route, or under its name.
type route struct {
	id     routeID // in Policy.routes
	name   string  // as decisions show it
	stored string  // as the store knows it
	method string  // of a framework that tells it
	plan   atomic.Pointer[engine.Plan]
	plans  []string // the text of each rule's plans
	number uint64   // of all routes of the limiter
}

// variant returns the variant of a rule's state.
func (r *route) variant(rule int) string { return r.plan.Load().Rules()[rule].Charge.Variant }

type routeID struct{ method, pattern string }

// unmatched names the quotas of requests without a route. Their paths are the
// client's choice, and unbounded.
const unmatched = "<unmatched>"

func (p *version) newRoute(name string) *route {
	name = strings.Clone(name)
	r := &route{name: name, stored: name, number: p.limiter.made.Add(1)}
	if p.set.Scope() == rules.ScopeEach {
		r.stored = "each " + name // a set made by Rules may be on the same route
	}
	rules := slices.Clone(p.rules)
	for i := range rules {
		rules[i].Charge.Policy = cmp.Or(rules[i].Charge.Policy, r.stored)
		plans := ""
		if of := p.list[i].Plans; len(of) > 0 {
			plans = fmt.Sprint(of) // sorted
		}
		r.plans = append(r.plans, plans)
	}
	r.plan.Store(p.limiter.engine.NewPlan(rules, &p.usual.Terms, p.distinguishes))
	return r
}

// separate gives the quotas of r and of other, which is on the same route, names of
// their own where rules of one name differ. State that two different rules share
// would admit what the looser one does. The new names are the same in every process,
// whichever of the two routes it meets first.
func (r *route) separate(p *version, other *policyRoute) (rule string) {
	mine, others := r.plan.Load().Rules(), other.route.plan.Load().Rules()
	for i := range mine {
		for j := range others {
			a, b := &mine[i].Charge, &others[j].Charge
			if a.Policy == r.stored && b.Policy == r.stored && a.Rule == b.Rule && (a.Quota != b.Quota || r.plans[i] != other.route.plans[j]) {
				r.setApart(p, i)
				other.route.setApart(other.policy, j)
				rule = a.Rule
			}
		}
	}
	return rule
}

// setApart gives a rule of a route a state of its own, named after what it allows.
func (r *route) setApart(p *version, i int) {
	rules := slices.Clone(r.plan.Load().Rules())
	hash := fnv.New64a()
	hash.Write(rules[i].Charge.Quota.Append(nil))
	io.WriteString(hash, r.plans[i])
	rules[i].Charge.Variant = strconv.FormatUint(hash.Sum64(), 36)
	r.plan.Store(p.limiter.engine.NewPlan(rules, &p.usual.Terms, p.distinguishes))
}

// route returns the route of a request. The program's patterns bound how many
// there are. Unknown methods count as one, so that clients cannot add routes.
func (p *version) route(from door.Framework) *route {
	if p.named != nil && !p.byPath {
		return p.named
	}
	method, pattern := from.Route()
	if p.named != nil {
		p.noticePathValues(pattern)
		return p.named
	}
	r := p.first.Load()
	if r != nil && r.method == method && r.id.pattern == pattern { // most policies are on one route
		return r
	}
	said := method
	method = door.KnownMethod(method)
	id := routeID{method, pattern}
	switch {
	case id.pattern == "":
		id, method = routeID{"", unmatched}, ""
	case p.set.Scope() == rules.ScopeRoute:
		id.method = "" // the methods of one declaration share its quotas
	}
	if r == nil || r.id != id {
		p.mu.RLock()
		r = p.routes[id]
		p.mu.RUnlock()
		if r == nil {
			r = p.addRoute(id, method, said)
		}
	}
	if r.method != method && !p.warned.Swap(true) {
		p.limiter.lines.Say(notice.SecondRoute, "rules", p.set.String(), "first", r.name, "second", routeName(method, pattern))
	}
	return r
}

func (p *version) addRoute(id routeID, method, said string) *route {
	p.mu.Lock()
	if r := p.routes[id]; r != nil {
		p.mu.Unlock()
		return r
	}
	r := p.newRoute(routeName(method, id.pattern))
	r.method = strings.Clone(method)
	r.id = routeID{strings.Clone(id.method), strings.Clone(id.pattern)}
	p.routes[r.id] = r
	first := p.first.Load()
	if first == nil {
		p.first.Store(r)
	}
	p.mu.Unlock()

	log := &p.limiter.lines // may be slow: not under the lock
	switch {
	case first != nil && p.set.Scope() == rules.ScopeRoute:
		if !p.warned.Swap(true) {
			log.Say(notice.SecondRoute, "rules", p.set.String(), "first", first.name, "second", r.name)
		}
	case id.pattern == unmatched:
		if first == nil && (said == "" || p.set.Scope() == rules.ScopeRoute) { // a framework knows its 404s
			log.Say(notice.NoRoute, "rules", p.set.String())
		}
	case said == "" && strings.HasSuffix(id.pattern, "/*"): // chi, in the Use of a router mounted there
		log.Say(notice.NoRoute, "rules", p.set.String())
	default:
		p.noticePathValue(id.pattern)
	}
	p.limiter.register(p, r)
	return r
}

func routeName(method, pattern string) string {
	if method == "" {
		return pattern
	}
	return method + " " + pattern
}

// register separates the quotas of a route from those of other policies on it.
func (l *Limiter) register(p *version, r *route) {
	l.mu.Lock()
	others := l.routes[r.stored]
	var rule string
	var other *policyRoute
	for i := range others {
		if found := r.separate(p, &others[i]); found != "" {
			rule, other = found, &others[i]
		}
	}
	shared := len(others) > 0 && rule == "" && r.method == "" && !strings.Contains(r.name, " ") && r.name != unmatched
	known := slices.ContainsFunc(others, func(o policyRoute) bool { return o.policy.set.Equal(p.set) })
	if !known && len(others) < maxPoliciesOnRoute && p.current.Load() == p { // else this is a request from before a Change
		l.routes[r.stored] = append(others, policyRoute{p, r})
	}
	l.mu.Unlock()
	switch {
	case rule != "":
		l.lines.Say(notice.DifferentRules, "route", r.name, "rule", rule, "first", other.policy.set.String(), "second", p.set.String())
	case shared:
		l.lines.Say(notice.SharedPattern, "pattern", r.name, "first", others[0].policy.set.String(), "second", p.set.String())
	}
}

// adopt gives a version of a set without a name, which Change has made since the set is With
// others, the routes of the version before.
func (l *Limiter) adopt(now, before *version) {
	before.mu.RLock()
	defer before.mu.RUnlock()
	for _, r := range before.routes {
		next := now.newRoute(r.name)
		next.id, next.method, next.number = r.id, r.method, r.number
		list := slices.Clone(next.plan.Load().Rules())
		for i, rule := range r.plan.Load().Rules() {
			if rule.Charge.Policy == r.stored && rule.Charge.Variant != "" && i < len(list) {
				list[i].Charge.Variant = rule.Charge.Variant
			}
		}
		next.plan.Store(l.engine.NewPlan(list, &now.usual.Terms, now.distinguishes))
		now.routes[r.id] = next
		now.first.CompareAndSwap(nil, next)
		known := slices.Clone(l.routes[r.stored]) // register reads it without the lock
		for i := range known {
			if known[i].route == r {
				known[i] = policyRoute{now, next}
			}
		}
		l.routes[r.stored] = known
	}
}

// maxPoliciesOnRoute bounds what a program that binds new rules all the time costs.
const maxPoliciesOnRoute = 64

// A policyRoute is a route of a policy.
type policyRoute struct {
	policy *version
	route  *route
}

// noticePathValues warns once for each pattern that does not have the path values of
// a named policy. The program's patterns bound their number.
func (p *version) noticePathValues(pattern string) {
	if _, seen := p.patterns.Load(pattern); seen || pattern == "" {
		return
	}
	if _, seen := p.patterns.LoadOrStore(strings.Clone(pattern), true); !seen {
		p.noticePathValue(pattern)
	}
}
