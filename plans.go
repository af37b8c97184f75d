package limit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/routelimit/limit/internal/grammar"
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
	empty := bucket.Missing != 0 && bucket.Missing == r.quota().Burst
	r.Limit = limit
	if burst := r.quota().Burst; ok && (empty || bucket.Missing > burst) {
		bucket.Missing = burst
		r.Algorithm = bucket
	}
	return r
}

// planProblems returns what is wrong with the plans of r.
func (r *Rule) planProblems() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if len(r.Plans) > grammar.MaxCallers {
		add("%d plans: write at most %d; use limit.Options.Override for the limits of single keys", len(r.Plans), grammar.MaxCallers)
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(r.Plans)) {
		if !grammar.ValidName(name) {
			add("plan %q: write 1 to %d letters, digits, '.', '_' or '-'", name, grammar.MaxName)
			continue
		}
		other := r.withLimit(r.Plans[name])
		q := other.quota()
		usual := r.quota()
		if usual.Validate() != nil {
			continue // one mistake is reported once
		}
		if err := q.Validate(); err != nil {
			add("plan %s: %v", name, err)
		}
	}
	return list
}
