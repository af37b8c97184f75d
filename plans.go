package limit

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
)

// cloned returns a copy of rules that shares no map or list with them.
func cloned(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		r := &rules[i]
		r.OnRefusal.Fallback = identified(r.OnRefusal.Fallback)
		if r.Shadow != nil {
			shadow := *r.Shadow
			r.Shadow = &shadow
		}
		r.Plans, r.Reserve, r.Exempt = maps.Clone(r.Plans), maps.Clone(r.Reserve), slices.Clone(r.Exempt)
	}
	return rules
}

// withLimit returns r for a caller with another limit. What follows the limit by
// default follows this one.
func (r Rule) withLimit(limit int64) Rule {
	bucket, ok := r.Algorithm.(TokenBucket)
	empty := r.empty()
	r.Limit = limit
	if burst := r.quota().Burst; ok && (empty || bucket.Missing > burst) {
		bucket.Missing = burst
		r.Algorithm = bucket
	}
	return r
}

// terms are what the rules of a policy allow callers of one kind: those on a plan, or
// those whose keys have an override. They do not change.
type terms struct {
	limits     []int64      // for each rule
	quotas     []core.Quota // of each
	suffixes   []string     // of the names of the rules in the store: see ownState
	stored     []string     // the names with the suffixes
	capacities []int64      // the most units of each that can remain
	reserves   [][]int64    // for each class, what its requests leave to higher ones of each rule; nil if nothing
	header     string       // the value of RateLimit-Policy
	members    []string     // of it, for each rule
}

// termsOf returns the terms of callers for which the rules have other limits; 0 means
// the usual one.
func (l *Limiter) termsOf(rules []Rule, other []int64) *terms {
	t := &terms{}
	reserves := false
	for i, r := range rules {
		if other[i] != 0 {
			r = r.withLimit(other[i])
		}
		q := r.quota()
		t.limits = append(t.limits, r.Limit)
		t.quotas = append(t.quotas, q)
		t.suffixes, t.stored = append(t.suffixes, ""), append(t.stored, r.name())
		t.capacities = append(t.capacities, q.Capacity())
		t.members = append(t.members, policyHeader(rules[i:i+1], t.limits[i:]))
		reserves = reserves || len(r.Reserve) > 0
	}
	t.header = policyHeader(rules, t.limits)
	if !reserves {
		return t
	}
	for class := range l.options.Classes {
		kept := make([]int64, len(rules))
		for i := range rules {
			usual := rules[i].quota()
			kept[i] = keptFrom(l.options.Classes[:class], &rules[i], usual.Capacity(), t.capacities[i])
		}
		t.reserves = append(t.reserves, kept)
	}
	return t
}

// A caller is what a decision knows of the caller.
type caller struct {
	terms  *terms
	class  uint8  // the index of its class
	exempt uint16 // a bit for each rule that exempts it
}

func (c *caller) exempts(rule int) bool { return c.exempt>>rule&1 != 0 }

// reserve returns the units that the caller leaves to higher classes.
func (c *caller) reserve(rule int) int64 {
	if c.terms == nil || c.terms.reserves == nil {
		return 0
	}
	return c.terms.reserves[c.class][rule]
}

// ownState gives callers on a plan buckets and queues of their own. What a bucket or
// queue lacks is worth other units at another rate: if callers on two plans shared one, a
// few requests of the one would stop the other, or make it forget what it has spent. The
// name is that of the plan, so that a bucket keeps its state when the limit changes.
func (t *terms) ownState(rules []Rule, plan string) {
	for i := range t.quotas {
		if _, named := rules[i].Plans[plan]; named && t.quotas[i].Refills() {
			t.suffixes[i] = quotaSuffix + plan
			t.stored[i] += t.suffixes[i]
		}
	}
}

// stateNames returns the names that a rule of the policy has in the store.
func (p *version) stateNames(rule int) []string {
	names := []string{p.names[rule]}
	for _, t := range p.plans {
		if name := t.stored[rule]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// givenLimits are what [Options].Override returned for the rules of a policy, 0 for
// nothing, and the terms that they change.
type givenLimits struct {
	terms  *terms
	limits [core.MaxCharges]int64
}

// givenTerms remembers the terms of callers with overrides: making them takes longer than
// a decision, and customers with many requests have overrides.
type givenTerms struct {
	mu    sync.RWMutex
	terms map[givenLimits]*terms
}

// maxGivenTerms is how many are remembered.
const maxGivenTerms = 1000

func (g *givenTerms) of(p *version, given *givenLimits) *terms {
	g.mu.RLock()
	t := g.terms[*given]
	g.mu.RUnlock()
	if t != nil {
		return t
	}
	limits := slices.Clone(given.terms.limits)
	for i := range limits {
		limits[i] = cmp.Or(given.limits[i], limits[i])
	}
	t = p.limiter.termsOf(p.set.rules, limits)
	t.suffixes, t.stored = given.terms.suffixes, given.terms.stored // buckets keep what is spent
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terms == nil || len(g.terms) >= maxGivenTerms {
		g.terms = make(map[givenLimits]*terms)
	}
	g.terms[*given] = t
	return t
}
