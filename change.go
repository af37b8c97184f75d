package limit

import (
	"errors"
	"slices"
	"time"

	"github.com/routelimit/limit/internal/excerpt"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/rules"
)

// change is Change of package operate, and lift is Lift.
func (l *Limiter) change(sets ...RuleSet) error { return l.changeTo(sets, false) }
func (l *Limiter) lift() error                  { return l.changeTo(nil, true) }

func (l *Limiter) changeTo(sets []RuleSet, lift bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes, errs := byName(sets)
	next := make(map[*Policy]RuleSet, len(l.named))
	for _, p := range l.named {
		set, err := p.under(changes, lift)
		next[p], errs = set, append(errs, err)
	}
	for _, unnamed := range l.nameless {
		if p := unnamed.Value(); p != nil && p.declared.Others() != nil {
			next[p] = p.declared
		}
	}
	for name, set := range changes {
		if l.named[name] == nil {
			errs = append(errs, l.validate(set))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := l.join(next, changes); err != nil {
		return err
	}
	for p, set := range next {
		if before := p.current.Load(); !set.Equal(before.set) {
			now := newVersion(p, set)
			l.adopt(now, before)
			p.current.Store(now)
		}
	}
	l.changes, l.lifted = changes, lift
	l.notices.changed.Store(time.Now().UnixNano())
	l.notices.look.Or(lookAtChanges)
	return nil
}

// join makes the next sets of policies those with the rules of the sets that they are With.
func (l *Limiter) join(next map[*Policy]RuleSet, changes map[string]RuleSet) error {
	var errs []error
	find := func(other RuleSet) (RuleSet, bool) {
		if of := l.named[other.Name()]; of != nil {
			return next[of], true
		}
		if set, ok := changes[other.Name()]; ok {
			return set, true
		}
		return other, false
	}
	for name, set := range changes {
		if l.named[name] == nil {
			_, err := set.Join(func(other RuleSet) (RuleSet, bool) {
				set, _ := find(other)
				return set, true // the program may declare it later
			})
			errs = append(errs, err)
		}
	}
	for p, set := range next {
		set, err := set.Join(find)
		if errs = append(errs, err); err == nil {
			next[p] = set
			errs = append(errs, p.check(set))
		}
	}
	return errors.Join(errs...)
}

// check returns which rules could resolve no key where p decides.
func (p *Policy) check(set RuleSet) error {
	var errs []error
	for _, at := range p.places {
		errs = append(errs, p.limiter.check(set, at))
	}
	return errors.Join(errs...)
}

// byName returns the sets of a change by their names.
func byName(sets []RuleSet) (changes map[string]RuleSet, errs []error) {
	changes = make(map[string]RuleSet, len(sets))
	for _, set := range sets {
		_, twice := changes[set.Name()]
		switch {
		case set.Scope() != rules.ScopeNamed:
			errs = append(errs, set.Errorf(-1, "rules %s have no name: write limit.Named(\"…\", rules…)", set))
			continue
		case twice:
			errs = append(errs, set.Errorf(-1, "is changed twice: remove one of the two sets"))
		case set.IsOverridable() && len(set.Declared())+len(set.Others()) == 0:
			errs = append(errs, set.Errorf(-1, "no rules: write at least one, such as limit.PerIP(time.Minute, 100)"))
		}
		changes[set.Name()] = set
	}
	return changes, errs
}

// under returns the rules of a named policy under changes.
func (p *Policy) under(changes map[string]RuleSet, lift bool) (RuleSet, error) {
	set, ok := changes[p.declared.Name()]
	bare := len(p.declared.Declared())+len(p.declared.Others()) == 0
	switch {
	case bare && lift:
		return p.declared.Lifted(), nil
	case !ok && bare:
		return set, p.declared.Errorf(-1, "has no rules: it was declared without, so write a set of that name")
	case !ok:
		return p.declared, nil
	case !p.declared.IsOverridable() && !set.Equal(p.declared):
		return set, p.declared.Unlike(set, "has other rules in code", "declare them Overridable, or choose another name")
	}
	set, err := set.Replacing(p.declared)
	return set, errors.Join(err, p.limiter.validate(set))
}

// noticeUndeclared warns about changed policies that the program does not declare.
func (l *Limiter) noticeUndeclared() {
	l.mu.Lock()
	var unknown []string
	for name := range l.changes {
		if l.named[name] == nil && !l.joins(name) {
			unknown = append(unknown, name)
		}
	}
	l.mu.Unlock()
	if unknown == nil {
		return
	}
	slices.Sort(unknown)
	l.lines.Say(notice.Undeclared, "policies", excerpt.Some(unknown), "declared", excerpt.Some(l.declaredNames()))
}

// joins reports whether a declared policy is With the set of a name.
func (l *Limiter) joins(name string) bool {
	for _, p := range l.named {
		if slices.ContainsFunc(p.current.Load().set.Others(), func(other RuleSet) bool { return other.Name() == name }) {
			return true
		}
	}
	return false
}
