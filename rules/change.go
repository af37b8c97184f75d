package rules

import (
	"errors"
	"fmt"
	"slices"
)

// Equal reports whether two sets have the same rules, by what they say and by their
// functions, and are With sets of the same names.
func (s Set) Equal(t Set) bool {
	return s.lifted == t.lifted && slices.EqualFunc(s.rules, t.rules, Rule.equal) && slices.Equal(s.from, t.from) &&
		slices.EqualFunc(s.with, t.with, func(a, b Set) bool { return a.name == b.name })
}

// Replacing returns s in place of a declared set: its rules get the Cost, Settle and
// Fallback of the declared rules of the same names, unless they have their own. The error
// joins one [*Error] for each declared rule with such functions that s leaves out: without
// them, the rules could admit much more.
func (s Set) Replacing(declared Set) (Set, error) {
	err := errors.Join(s.lostFunctions(declared.rules)...)
	s.rules = slices.Clone(s.rules)
	for i := range s.rules {
		rule := &s.rules[i]
		for j := range declared.rules {
			d := &declared.rules[j]
			if d.name() != rule.name() {
				continue
			}
			if rule.Cost == (Cost{}) {
				rule.Cost = d.Cost
			}
			if rule.Settle == (Settlement{}) {
				rule.Settle = d.Settle
			}
			if rule.OnRefusal.Degrade && rule.OnRefusal.Fallback == nil {
				rule.OnRefusal.Fallback = d.OnRefusal.Fallback
			}
		}
	}
	return s, err
}

// lostFunctions returns an error for each declared rule with functions that has no
// counterpart in s: a rule of its name.
func (s Set) lostFunctions(declared []Rule) (errs []error) {
	for _, d := range declared {
		functions := d.Cost != (Cost{}) || d.Settle != (Settlement{}) || d.OnRefusal.Fallback != nil
		if !functions || slices.ContainsFunc(s.rules, func(r Rule) bool { return r.name() == d.name() }) {
			continue
		}
		unnamed := d
		unnamed.Name, unnamed.Cost, unnamed.Settle = "", Cost{}, Settlement{} // which stay those in code
		lost := s.Errorf(-1, "this rule has functions (Cost, Settle or Fallback) in code, "+
			"and no rule here has its name: write a rule %q to keep them", d.name()+": "+unnamed.String())
		lost.Rule = d.String()
		errs = append(errs, lost)
	}
	return errs
}

// Unlike returns the error of a set that is declared under the name of s with other
// rules. The text says what is wrong, and the advice what to do about it.
func (s Set) Unlike(here Set, text, advice string) error {
	if a, b := s.String(), here.String(); a != b {
		text += fmt.Sprintf(" (%s, here %s)", a, b)
	}
	for i := range min(len(s.rules), len(here.rules)) {
		if difference := s.rules[i].otherFunction(&here.rules[i]); difference != "" {
			text += fmt.Sprintf(": rule %q has %s", s.rules[i].name(), difference)
		}
	}
	return s.Errorf(-1, "%s: %s", text, advice)
}

// otherFunction returns the first function of a rule that differs in another one, or "".
func (r *Rule) otherFunction(here *Rule) string {
	for _, a := range table() {
		if a.same != nil {
			if _, difference := a.same(r, here); difference != "" {
				return difference
			}
		}
	}
	return ""
}
