package limit

import (
	"errors"
	"slices"
	"time"

	"github.com/routelimit/limit/internal/notice"
)

// Overridable returns the set as a default, whose rules operate.Change may replace. The
// set must be [Named]. It may have no rules, for a policy that only Change defines: until
// then, its requests are undecided and answered with 503.
func (s RuleSet) Overridable() RuleSet {
	s.overridable = true
	return s
}

// change is Change of package operate.
func (l *Limiter) change(sets ...RuleSet) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes, errs := byName(sets)
	next := make(map[*Policy]RuleSet, len(l.named))
	for _, p := range l.named {
		set, err := p.under(changes)
		next[p], errs = set, append(errs, err)
	}
	for name, set := range changes {
		if l.named[name] == nil {
			errs = append(errs, l.validate(set))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for p, set := range next {
		if !set.sameRules(p.current.Load().set) {
			p.current.Store(newVersion(p, set))
		}
	}
	l.changes = changes
	l.notices.changed.Store(time.Now().UnixNano())
	l.notices.look.Or(lookAtChanges)
	return nil
}

// byName returns the sets of a change by their names.
func byName(sets []RuleSet) (changes map[string]RuleSet, errs []error) {
	changes = make(map[string]RuleSet, len(sets))
	for _, set := range sets {
		_, twice := changes[set.name]
		switch {
		case set.scope != scopeNamed:
			errs = append(errs, set.Errorf(-1, "rules %s have no name: write limit.Named(\"…\", rules…)", set))
			continue
		case twice:
			errs = append(errs, set.Errorf(-1, "is changed twice: remove one of the two sets"))
		}
		set.overridable = false // by another set
		changes[set.name] = set
	}
	return changes, errs
}

// sameRules reports whether two sets have the same rules by value.
func (s RuleSet) sameRules(t RuleSet) bool { return slices.EqualFunc(s.rules, t.rules, Rule.equal) }

// under returns the rules of a named policy under changes.
func (p *Policy) under(changes map[string]RuleSet) (RuleSet, error) {
	set, ok := changes[p.declared.name]
	switch {
	case !ok && len(p.declared.rules) == 0:
		return set, p.declared.Errorf(-1, "has no rules: it was declared without, so write a set of that name")
	case !ok:
		return p.declared, nil
	case !p.declared.overridable && !set.sameRules(p.declared):
		return set, p.declared.unlike(set, "has other rules in code", "declare them Overridable, or choose another name")
	}
	errs := set.lostFunctions(p.declared.rules)
	set = set.withFunctions(p.declared.rules)
	errs = append(errs, p.limiter.validate(set))
	for _, at := range p.places {
		errs = append(errs, p.limiter.check(set, at))
	}
	return set, errors.Join(errs...)
}

// withFunctions returns s with the functions of the declared rules of the same names.
func (s RuleSet) withFunctions(declared []Rule) RuleSet {
	s.rules = slices.Clone(s.rules)
	for i := range s.rules {
		rule := &s.rules[i]
		for j := range declared {
			d := &declared[j]
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
	return s
}

// hasFunctions reports whether r has functions that withFunctions keeps.
func (r *Rule) hasFunctions() bool {
	return r.Cost != (Cost{}) || r.Settle != (Settlement{}) || r.OnRefusal.Fallback != nil
}

// lostFunctions returns an error for each declared rule with functions that has no
// counterpart in s: a rule of its name. Without the functions, the rules could admit much
// more.
func (s RuleSet) lostFunctions(declared []Rule) (errs []error) {
	for _, d := range declared {
		if !d.hasFunctions() || slices.ContainsFunc(s.rules, func(r Rule) bool { return r.name() == d.name() }) {
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

// noticeUndeclared warns about changed policies that the program does not declare.
func (l *Limiter) noticeUndeclared() {
	declared := l.declaredNames()
	l.mu.Lock()
	var unknown []string
	for name := range l.changes {
		if l.named[name] == nil {
			unknown = append(unknown, name)
		}
	}
	l.mu.Unlock()
	if unknown == nil {
		return
	}
	slices.Sort(unknown)
	notice.Write(l.log(), notice.Undeclared, "limit: policies were changed that the program does not declare, so their rules apply to no request: "+
		"correct their names, or declare them", 0, "policies", someOf(unknown), "declared", someOf(declared))
}
