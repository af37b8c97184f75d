package limit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// A Policy is a [RuleSet] bound to a [Limiter]. It decides: HTTP requests by
// [Policy.Handler], [Policy.Middleware] and the adapters, and everything else by
// [Policy.Take], [Policy.Wait] and [Policy.Reserve]. Make it with
// [Limiter.Policy]. It is safe for concurrent use.
type Policy struct {
	limiter    *Limiter
	set        RuleSet
	keys       []KeyResolver // the distinct resolvers of the rules
	keyOf      []int         // for each rule, the index of its resolver
	names      []string      // for each rule
	capacities []int64       // for each rule, the most units that can remain
	header     string        // the value of RateLimit-Policy

	leases, settles, queues bool // whether a rule is of Concurrency, has a Settle, is of Queue
	byIP, byUser            bool // whether a rule is keyed by address, by user

	attached atomic.Bool // whether Handler was called
	named    *route      // of a named policy

	mu     sync.RWMutex
	routes map[routeID]*route // of the others
	first  *route             // the first of them
	warned bool               // about a second route
}

// A route is a policy under the name of its quotas, with the charges of a
// request except for their keys and costs.
type route struct {
	name    string
	charges []core.Charge
	marks   atomic.Int32 // requests left to mark: see Policy.mark
}

type routeID struct{ method, pattern string }

// unmatched names the quotas of requests without a route. Their paths are the
// client's choice, and unbounded.
const unmatched = "<unmatched>"

func newPolicy(l *Limiter, set RuleSet) *Policy {
	p := &Policy{limiter: l, set: set, routes: make(map[routeID]*route)}
	index := make(map[string]int)
	for _, r := range set.rules {
		text := r.Key.String()
		i, known := index[text]
		if !known || r.Key.uses(byFunc) {
			i = len(p.keys)
			index[text] = i
			p.keys = append(p.keys, r.Key)
		}
		p.keyOf = append(p.keyOf, i)
		p.names = append(p.names, r.name())
		p.leases = p.leases || r.leases()
		p.settles = p.settles || r.Settle != nil
		p.queues = p.queues || r.queues()
		p.byIP = p.byIP || r.Key.uses(byIP)
		p.byUser = p.byUser || r.Key.uses(byUser)
		q := r.quota()
		p.capacities = append(p.capacities, q.Capacity())
	}
	p.header = policyHeader(set.rules)
	if set.scope == scopeNamed {
		p.named = p.newRoute(set.name)
	}
	return p
}

func (p *Policy) newRoute(name string) *route {
	r := &route{name: strings.Clone(name)}
	r.marks.Store(firstMarks)
	for i, rule := range p.set.rules {
		r.charges = append(r.charges, core.Charge{Rule: p.names[i], Quota: rule.quota(), OnError: rule.OnStoreError})
	}
	return r
}

// route returns the route of a request. The program's patterns bound how many
// there are; of the methods, which a route may leave to the client, only the
// known ones count.
func (p *Policy) route(c *Call) *route {
	if p.named != nil {
		return p.named
	}
	id := routeID{knownMethod(c.Method), c.Pattern}
	if id.pattern == "" {
		id = routeID{"", unmatched}
	}
	p.mu.RLock()
	r := p.routes[id]
	p.mu.RUnlock()
	if r == nil {
		r = p.addRoute(id, c)
	}
	return r
}

func (p *Policy) addRoute(id routeID, c *Call) *route {
	p.mu.Lock()
	if r := p.routes[id]; r != nil {
		p.mu.Unlock()
		return r
	}
	name := id.pattern
	if id.method != "" {
		name = id.method + " " + id.pattern
	}
	if p.set.scope == scopeEach {
		name = "each " + name // a set made by Rules may be on the same route
	}
	r := p.newRoute(name)
	p.routes[routeID{strings.Clone(id.method), strings.Clone(id.pattern)}] = r
	first := p.first
	if first == nil {
		p.first = r
	}
	second := first != nil && p.set.scope == scopeRoute && !p.warned
	p.warned = p.warned || second
	p.mu.Unlock()

	n, log := &p.limiter.notices, p.limiter.log() // a log may be slow: not under the lock
	switch {
	case second:
		n.secondRoute(log, p, first, r)
	case id.pattern == unmatched:
		if first == nil && (c.Method == "" || p.set.scope == scopeRoute) { // a framework knows its 404s
			n.noRoute(log, p)
		}
	default:
		p.limiter.noticeSharedPattern(p, r, c)
		n.noPathValue(log, p, c.Pattern)
	}
	return r
}

const otherMethod = "OTHER"

// knownMethod maps the methods that clients invent to one.
func knownMethod(method string) string {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return otherMethod
}

// check returns an error that joins one [*RuleError] for each rule that could
// resolve no key on the route of a call: a rule by user without a function for the
// user, and a rule by a path value that the pattern does not have.
func (l *Limiter) check(rules RuleSet, c *Call) error {
	var errs []error
	wrong := func(rule Rule, format string, args ...any) {
		errs = append(errs, &RuleError{Rule: rule.String(), Problem: fmt.Sprintf(format, args...)})
	}
	if c.Everywhere && rules.scope == scopeRoute {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf("rules %s cover many routes: write limit.Named(\"…\", rules…) for one "+
			"quota of all, or limit.EachRoute(rules…) for a quota of each", rules)})
	}
	for _, rule := range rules.rules {
		if rule.Key.uses(byUser) && c.User == nil && l.options.User == nil {
			wrong(rule, "no user resolver: set ginlimit.Limiter.User, echolimit.Limiter.User or the User of your adapter to read "+
				"what authentication put into its context, or limit.Options.User on net/http")
		}
		has := pathValues(c.Pattern)
		for _, name := range rule.missingPathValues(c.Pattern) {
			if len(has) == 0 {
				wrong(rule, "key \"path %s\": the path %q has no values: add one, or write another key", name, c.Pattern)
			} else {
				wrong(rule, "key \"path %s\": the path %q has no such value: write \"path %s\"",
					name, c.Pattern, strings.Join(has, `" or "path `))
			}
		}
	}
	return errors.Join(errs...)
}

// missingPathValues returns the path values that r is keyed by and a pattern does
// not have. An empty pattern is one that is not known yet.
func (r *Rule) missingPathValues(pattern string) (missing []string) {
	if pattern == "" {
		return nil
	}
	has := pathValues(pattern)
	for _, name := range r.Key.pathValues() {
		if !slices.Contains(has, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// pathValues returns the names in a pattern: "id" in "/users/:id",
// "/users/{id}" and "/users/{id...}", and "path" in "/files/*path". A bare "*" is
// Echo's name for the rest of a path.
func pathValues(pattern string) (names []string) {
	serveMux := strings.Contains(pattern, " ") // a method, and no colons
	for segment := range strings.SplitSeq(pattern, "/") {
		if serveMux || strings.Contains(segment, "{") {
			for _, part := range strings.Split(segment, "{")[1:] {
				name, _, _ := strings.Cut(part, "}")
				name, _, _ = strings.Cut(name, ":") // chi: {id:[0-9]+}
				if name != "$" {                    // a ServeMux's end of the path
					names = append(names, strings.TrimSuffix(name, "..."))
				}
			}
			continue
		}
		switch i := strings.IndexAny(segment, ":*"); {
		case i >= 0 && segment[i:] == "*":
			names = append(names, "*")
		case i >= 0:
			names = append(names, segment[i+1:])
		}
	}
	return names
}
