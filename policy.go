package limit

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Policy is a [RuleSet] bound to a [Limiter]. It decides: HTTP requests by
// [Policy.Handler], [Policy.Middleware] and the adapters, and everything else by
// [Policy.Take], [Policy.Wait] and [Policy.Reserve]. Make it with
// [Limiter.Policy]. It is safe for concurrent use.
type Policy struct {
	limiter *Limiter
	scope   scope
	current atomic.Pointer[version]

	attached atomic.Bool  // whether Handler was called
	warned   atomic.Bool  // about a second route
	userless atomic.Int32 // see noticeUsers

	// Of a named policy, under Limiter.mu.
	declared RuleSet // in code
	places   []place // where it decides
}

// A version is the rules of a policy, and what follows from them. A request is decided
// by one version from its beginning to its end. [Limiter.Change] gives a policy a new
// one.
type version struct {
	*Policy
	number   uint64 // of all versions of the limiter
	set      RuleSet
	keyOf    []int     // for each rule, the index of the first rule with its resolver
	names    []string  // for each rule
	members  []string  // for each rule, how its member of RateLimit begins
	refusals []Refusal // for each rule what refused requests meet; nil if that is 429
	watch    *watch    // nil if no rule watches or hides

	waits                bool // whether a refused request may wait
	leases, queues       bool // whether a rule is of Concurrency, or of Queue
	bars, shows          bool // whether a rule is a Ban, or Distinct
	costs, settles       bool // whether a rule has a Cost, or a Settle
	byIP, byUser, byPath bool // whether a rule is keyed by address, by user alone, by a path value
	joins                bool // whether a rule is keyed by several resolvers, and some may not be asked

	callers // how callers differ

	named    *route   // of a named policy
	patterns sync.Map // met by a named policy with path values

	mu     sync.RWMutex
	routes map[routeID]*route    // of the others
	first  atomic.Pointer[route] // the first of them
}

func newPolicy(l *Limiter, set RuleSet) *Policy {
	p := &Policy{limiter: l, scope: set.scope, declared: set}
	p.current.Store(newVersion(p, set))
	return p
}

func newVersion(policy *Policy, set RuleSet) *version {
	p := &version{Policy: policy, number: policy.limiter.versions.Add(1), set: set, routes: make(map[routeID]*route)}
	index := make(map[string]int)
	for i, r := range set.rules {
		text := r.Key.String()
		first, known := index[text]
		if !known || r.Key.uses(byFunc) {
			first = i
			index[text] = i
		}
		p.keyOf = append(p.keyOf, first)
		p.bars = p.bars || r.bars()
		p.shows = p.shows || r.shows()
		p.names = append(p.names, r.name())
		p.leases = p.leases || r.leases()
		p.costs = p.costs || r.Cost != (Cost{})
		p.settles = p.settles || r.Settle != (Settlement{})
		p.queues = p.queues || r.queues()
		p.byUser = p.byUser || r.Key.kind == byUser // others have a key without a user too
		for _, k := range []KeyResolver{r.Key, r.values()} {
			p.byIP = p.byIP || k.uses(byIP)
			p.joins = p.joins || len(k.parts) > 0
			p.byPath = p.byPath || k.uses(byPath)
		}
	}
	p.members = rateLimitMembers(set.rules)
	p.refusals = policy.limiter.refusals(set)
	p.watch = newWatch(set.rules, p.refusals)
	p.waits = slices.ContainsFunc(p.refusals, func(r Refusal) bool { return r.Wait > 0 })
	p.callers = newCallers(policy.limiter, set.rules, p.waits)
	p.byIP = p.byIP || p.exemptsIP
	if set.scope == scopeNamed {
		p.named = p.newRoute(set.name)
	}
	return p
}

// A place is where rules are declared.
type place struct {
	pattern    string // "" if it is not known yet
	everywhere bool   // before every route of a server
	user       bool   // whether the adapter has a function for the user
}

// check returns an error that joins one [*RuleError] for each rule that could
// resolve no key at a place: a rule by user without a function for the
// user, and a rule by a path value that the pattern does not have.
func (l *Limiter) check(rules RuleSet, at place) error {
	var errs []error
	wrong := func(rule int, format string, args ...any) { errs = append(errs, rules.Errorf(rule, format, args...)) }
	if at.everywhere && rules.scope == scopeRoute {
		wrong(-1, "rules %s cover many routes: write limit.Named(\"…\", rules…) for one "+
			"quota of all, or limit.EachRoute(rules…) for a quota of each", rules)
	}
	for i, rule := range rules.rules {
		if (rule.Key.uses(byUser) || rule.values().uses(byUser)) && !at.user && l.options.User == nil {
			wrong(i, "no user resolver: set ginlimit.Limiter.User, echolimit.Limiter.User or the User of your adapter to read "+
				"what authentication put into its context, or limit.Options.User on net/http")
		}
		for _, problem := range l.callerProblems(&rule, at) {
			wrong(i, "%s", problem)
		}
		if refusal := l.refusal(&rule); at.everywhere && (refusal.Redirect != "" || refusal.Fallback != nil) {
			wrong(i, "a call cannot be redirected, nor sent to another handler: write refuse 429, or Degrade without a Fallback")
		}
		has := pathValues(at.pattern)
		for _, name := range rule.missingPathValues(at.pattern) {
			if len(has) == 0 {
				wrong(i, "key \"path %s\": the path %q has no values: add one, or write another key", name, at.pattern)
			} else {
				wrong(i, "key \"path %s\": the path %q has no such value: write \"path %s\"",
					name, at.pattern, strings.Join(has, `" or "path `))
			}
		}
	}
	return errors.Join(errs...)
}
