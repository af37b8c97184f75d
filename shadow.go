package limit

import "fmt"

// watchProblems returns what is wrong with the fields of a rule of s that make it
// watch.
func (s RuleSet) watchProblems(r *Rule) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if r.Enforced != 0 && !r.Shadow {
		add("enforced %d: it needs a Shadow: write shadow enforced %[1]d, or leave it out for all keys", r.Enforced)
	}
	if r.Enforced < 0 || r.Enforced > 99 {
		add("enforced %d: write the percentage of keys, 1 to 99; leave out shadow and enforced for all keys", r.Enforced)
	}
	if r.Replaces == "" {
		return list
	}
	if !r.Shadow {
		add("replaces %q: it needs a Shadow: remove the rule %[1]q, or write shadow", r.Replaces)
	}
	for i := range s.rules {
		if old := &s.rules[i]; old.name() == r.Replaces && !old.Shadow {
			return list
		}
	}
	add("replaces %q: write the name of a rule of the same set that is not a shadow", r.Replaces)
	return list
}
