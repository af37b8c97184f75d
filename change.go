package limit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/rules"
)

// Change replaces the rules of policies while the program runs, such as those of a
// policy file. Each set must be [Named], and replaces the rules of the policy of that
// name. The program declares the policy, before or later, as [RuleSet.Overridable]. A
// policy that this call does not name returns to its declared rules, so Change without
// sets undoes all changes.
//
// All sets take effect, or none does. The error joins one [*RuleError] for each thing
// wrong with them. Requests that have begun, waiting ones included, end under the rules
// that they began with.
//
// A rule keeps the state of its keys if it keeps its algorithm and its name. A default
// name follows the key and the window. docs/plans.md says what each algorithm keeps. A
// rule without a Cost, Settle or Fallback gets that of the declared rule of the same name,
// so that rules in text do not lose what only code can say. A set that leaves such a rule
// out is an error.
func (l *Limiter) Change(sets ...RuleSet) error {
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
		if !set.Equal(p.current.Load().set) {
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
		_, twice := changes[set.Name()]
		switch {
		case set.Scope() != rules.ScopeNamed:
			errs = append(errs, set.Errorf(-1, "rules %s have no name: write limit.Named(\"…\", rules…)", set))
			continue
		case twice:
			errs = append(errs, set.Errorf(-1, "is changed twice: remove one of the two sets"))
		case set.IsOverridable() && len(set.Declared()) == 0:
			errs = append(errs, set.Errorf(-1, "no rules: write at least one, such as limit.PerIP(time.Minute, 100)"))
		}
		changes[set.Name()] = set
	}
	return changes, errs
}

// under returns the rules of a named policy under changes.
func (p *Policy) under(changes map[string]RuleSet) (RuleSet, error) {
	set, ok := changes[p.declared.Name()]
	switch {
	case !ok && len(p.declared.Declared()) == 0:
		return set, p.declared.Errorf(-1, "has no rules: it was declared without, so write a set of that name")
	case !ok:
		return p.declared, nil
	case !p.declared.IsOverridable() && !set.Equal(p.declared):
		return set, p.declared.Unlike(set, "has other rules in code", "declare them Overridable, or choose another name")
	}
	set, err := set.Replacing(p.declared)
	errs := []error{err, p.limiter.validate(set)}
	for _, at := range p.places {
		errs = append(errs, p.limiter.check(set, at))
	}
	return set, errors.Join(errs...)
}

// policy is [Limiter.Policy] for a place, which is nil if it is not known.
func (l *Limiter) policy(set RuleSet, at *door.Place) (*Policy, error) {
	if set.Scope() != rules.ScopeNamed {
		errs := []error{l.validate(set)}
		if set.IsOverridable() {
			errs = append(errs, set.Errorf(-1, "rules %s have no name to be changed by: write limit.Named(\"…\", rules…)", set))
		}
		if at != nil {
			errs = append(errs, l.check(set, *at))
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		return newPolicy(l, set), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.named[set.Name()]
	if p == nil {
		var err error
		if p, err = l.declare(set); err != nil {
			if at != nil {
				err = errors.Join(err, l.check(set, *at))
			}
			return nil, err
		}
	} else if len(set.Declared()) > 0 && !set.Equal(p.declared) {
		return nil, p.declared.Unlike(set, "already has other rules",
			"declare the set once and share it, or choose another name")
	}
	if at != nil {
		if err := p.attachLocked(*at); err != nil {
			return nil, err
		}
	}
	l.named[set.Name()] = p
	return p, nil
}

// Validate returns what is wrong with a set on this limiter, which [RuleSet.Validate] does
// not know: classes, and functions of the options for callers that the rules distinguish,
// as behind a ServeMux. It declares nothing.
func (l *Limiter) Validate(set RuleSet) error {
	return errors.Join(l.validate(set), l.check(set, door.Place{}))
}

// Declared returns the names of the policies that the program has declared, sorted.
func (l *Limiter) Declared() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.named))
}

// declare returns a new policy of a named set, with the rules of Change if it has any.
func (l *Limiter) declare(set RuleSet) (*Policy, error) {
	_, changed := l.changes[set.Name()]
	if changed && len(set.Declared()) == 0 {
		set = set.Overridable()
	}
	if err := l.validate(set); err != nil {
		return nil, err
	}
	p := &Policy{limiter: l, scope: set.Scope(), declared: set}
	now := set
	if changed {
		var err error
		if now, err = p.under(l.changes); err != nil {
			return nil, err
		}
	}
	p.current.Store(newVersion(p, now))
	return p, nil
}

// errNoRules is the error of requests to a policy that only Change defines, before it
// has.
var errNoRules = fmt.Errorf("%w: the policy has no rules yet: call Limiter.Change, or follow a policy file, before the program serves", ErrUndecided)

// attach records a place where the policy decides. The error says which of its rules
// could resolve no key there.
func (p *Policy) attach(at door.Place) error {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	return p.attachLocked(at)
}

func (p *Policy) attachLocked(at door.Place) error {
	if err := p.limiter.check(p.current.Load().set, at); err != nil {
		return err
	}
	if !slices.Contains(p.places, at) {
		p.places = append(p.places, at)
	}
	return nil
}

// noticeUndeclared warns about changed policies that the program does not declare.
func (l *Limiter) noticeUndeclared() {
	declared := l.Declared()
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
		"correct their names, or declare them", 0, "policies", listed(unknown), "declared", listed(declared))
}

// listed returns the first names of a list as text.
func listed(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
