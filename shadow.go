package limit

import (
	"slices"
)

// A Comparison is what a shadow (New) and the rule that it may replace (Old) say about
// one request. New decides as if it were the only rule. A request that a third rule
// refuses charges only New, so New then refuses more requests than it would in place of
// Old.
type Comparison struct{ Old, New RuleDecision }

// Comparisons returns one Comparison for each [Shadow].Replaces whose shadow was not
// enforced for the request. Packages promlimit and otellimit count them.
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
