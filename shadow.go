package limit

import (
	"fmt"
	"slices"
)

// A Comparison is what a shadow (New) and the rule that it may replace (Old) say about
// one request. New decides as if it were the only rule. A request that a third rule
// refuses charges only New, so New then refuses more requests than it would in place of
// Old.
type Comparison struct{ Old, New RuleDecision }

// Comparisons returns one Comparison for each [Shadow].Replaces whose shadow was not
// enforced for the request. Package agreement counts them.
func (d Decision) Comparisons() (list []Comparison) {
	if d.policy == nil || d.of.Watched == 0 {
		return nil
	}
	for i := range d.policy.set.rules {
		replaces := d.policy.set.rules[i].shadow().Replaces
		if old := slices.Index(d.policy.names, replaces); old >= 0 && d.shadows(i) {
			list = append(list, Comparison{Old: d.rule(old), New: d.rule(i)})
		}
	}
	return list
}

// watchProblems returns what is wrong with the fields of a rule of s that make it
// watch.
func (s RuleSet) watchProblems(r *Rule) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	shadow := r.shadow()
	if shadow.Enforced < 0 || shadow.Enforced > 99 {
		add("enforced %d: write the percentage of keys, 1 to 99; leave out shadow and enforced for all keys", shadow.Enforced)
	}
	if (r.leases() || r.noQuota()) && (r.Shadow != nil || r.OnRefusal.Mark) {
		add("%v cannot watch: leave out shadow and mark, or write another algorithm", r.algorithm())
	}
	if r.Shadow != nil && r.OnRefusal.Mark {
		add("shadow and mark: write one of them")
	}
	if shadow.Replaces == "" {
		return list
	}
	for i := range s.rules {
		if old := &s.rules[i]; old.name() == shadow.Replaces && old.Shadow == nil {
			return list
		}
	}
	add("replaces %q: write the name of a rule of the same set that is not a shadow", shadow.Replaces)
	return list
}
