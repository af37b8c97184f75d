package limit

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/fields"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
)

// A version is the rules of a policy, and what follows from them. A request is decided
// by one version from its beginning to its end. operate.Change gives a policy a new
// one.
type version struct {
	*Policy
	set      RuleSet
	list     []Rule        // of the set
	rules    []engine.Rule // without the policy of their charges, unless they are of another set
	keyOf    []int         // for each rule, the index of the first rule with its resolver; above its own if it has no key
	names    []string      // for each rule
	members  []string      // for each rule, how its member of RateLimit begins
	refusals []Refusal     // for each rule what refused requests meet; nil if that is 429
	hides    bool          // whether a rule does not appear in headers, for some keys at least

	before  []func(*layer) bool               // what may decide a request without its rules
	resolve []func(*layer, *engine.Run) error // what turns a request into charges

	waits, settles     bool // whether a refused request may wait, and whether the answer settles a rule
	bars               bool // whether a rule is a Ban
	asks               bool // whether a rule asks HTTP requests for their cost, or answers
	shows              bool // whether a rule counts values
	byPath, joins      bool // whether a rule is keyed by a path value, or by several resolvers
	composed, unfilled bool // whether the set is With others, and whether it lacks rules that it had or will have

	callers // how callers differ

	layers   sync.Pool // of *layer, to use again
	named    *route    // of a named policy
	patterns sync.Map  // met by a named policy with path values

	mu     sync.RWMutex
	routes map[routeID]*route    // of the others
	first  atomic.Pointer[route] // the first of them
}

func newVersion(policy *Policy, set RuleSet) *version {
	p := &version{Policy: policy, set: set, list: set.Declared(), routes: make(map[routeID]*route), refusals: policy.limiter.refusals(set),
		composed: set.Others() != nil, unfilled: len(set.Rules()) == 0 || set.IsLifted()}
	index := make(map[string]int)
	var addresses, users, costs bool
	named := set.Rules()
	for i := range named {
		r := &named[i]
		text := r.Key.String()
		first, known := index[text]
		if !known || r.Key.Uses(grammar.Func) {
			first = i
			index[text] = i
		}
		if r.Key.Kind() == grammar.Global {
			first = len(named)
		}
		p.keyOf = append(p.keyOf, first)
		p.names = append(p.names, r.Name)
		p.rules = append(p.rules, p.compile(i, r))
		p.members = append(p.members, fields.State(r.Name, &p.rules[i].Charge.Quota))
		p.hides = p.hides || r.Hidden || r.Shadow != nil
		p.waits = p.waits || p.rules[i].Wait > 0
		p.settles = p.settles || p.rules[i].Settles
		p.bars = p.bars || p.rules[i].Charge.Quota.Bars()
		p.asks = p.asks || r.Cost != (rules.Cost{}) || r.Settle != (rules.Settlement{})
		costs = costs || r.Cost != (rules.Cost{}) || p.rules[i].Charge.Quota.Bars()
		users = users || r.Key.Kind() == grammar.User // others have a key without a user too
		for _, k := range []KeyResolver{r.Key, r.Values()} {
			addresses = addresses || k.Uses(grammar.IP)
			p.shows = p.shows || k.Kind() != 0 && p.rules[i].Charge.Quota.Algorithm == core.Distinct
			p.joins = p.joins || k.Joins()
			p.byPath = p.byPath || k.Uses(grammar.Path)
		}
	}
	p.layers.New = func() any { return &layer{version: p} }
	p.callers = newCallers(policy.limiter, named, p.waits)

	if addresses || p.exemptsIP {
		p.before = append(p.before, (*layer).noticeProxies)
	}
	if o := &policy.limiter.options; o.Exempt != nil || o.Bar != nil {
		p.before = append(p.before, (*layer).screen)
	}
	p.resolve = append(p.resolve, (*layer).keys)
	if costs {
		p.resolve = append(p.resolve, (*layer).costs)
	} else {
		p.resolve = append(p.resolve, (*layer).usualCost)
	}
	if p.distinguishes {
		p.resolve = append(p.resolve, (*layer).caller)
	}
	if users {
		p.resolve = append(p.resolve, (*layer).noticeUsers)
	}
	if set.Scope() == rules.ScopeNamed {
		p.named = p.newRoute(set.Name())
	}
	return p
}

// compile returns what the engine knows of a rule.
func (p *version) compile(i int, r *Rule) engine.Rule {
	q := r.Quota()
	compiled := engine.Rule{
		Charge:  core.Charge{Rule: r.Name, Quota: q, OnError: r.OnStoreError, MaxDebt: r.Debt},
		Settles: r.Settle != (rules.Settlement{}),
		Watches: r.Shadow != nil,
	}
	if policy, name := p.set.Origin(i); policy != "" {
		compiled.Charge.Policy, compiled.Charge.Rule = policy, name
	}
	compiled.Keeps = r.Attempts || compiled.Settles || q.Bars()
	if r.Shadow != nil {
		compiled.Enforced = r.Shadow.Enforced
	}
	if p.refusals != nil {
		refusal := &p.refusals[i]
		compiled.Watches = compiled.Watches || refusal.Mark
		compiled.Wait, compiled.Waiters = refusal.Wait, refusal.Waiters
	}
	return compiled
}

// refusals returns what requests meet that the rules of a set refuse, one for each
// rule, or nil if that is 429 and nothing else for all of them.
func (l *Limiter) refusals(set RuleSet) []Refusal {
	declared := set.Declared()
	list := make([]Refusal, len(declared))
	special, strikes := false, slices.ContainsFunc(declared, bars)
	for i := range declared {
		list[i] = declared[i].Refusal(l.options.OnRefusal)
		r := &list[i]
		if strikes { // each refusal of a waiting request would be a strike
			r.Wait, r.Waiters = 0, 0
		}
		special = special || r.Wait != 0 || r.Status == http.StatusServiceUnavailable || r.Redirect != "" || r.Degrade || r.Mark
	}
	if !special {
		return nil
	}
	return list
}

// bars reports whether r is a [Ban].
func bars(r Rule) bool { q := r.Quota(); return q.Bars() }
