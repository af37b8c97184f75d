package limit

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/rules"
)

// A Policy is a [RuleSet] bound to a [Limiter]. It decides: HTTP requests by
// [Policy.Handler] and the adapters, and everything else by [Policy.Take] and [Policy.Wait].
// Make it with [Limiter.Policy]. It is safe for concurrent use.
type Policy struct {
	limiter *Limiter
	scope   rules.Scope
	current atomic.Pointer[version]

	attached atomic.Bool  // whether Handler was called
	warned   atomic.Bool  // about a second route
	userless atomic.Int32 // see noticeUsers

	// Under Limiter.mu.
	declared RuleSet      // in code
	places   []door.Place // where it decides
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
		return l.unnamed(set, at)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.namedPolicy(set)
	if err != nil {
		if at != nil && l.named[set.Name()] == nil {
			err = errors.Join(err, l.check(set, *at))
		}
		return nil, err
	}
	if err := p.attachLocked(at); err != nil {
		return nil, err
	}
	l.named[set.Name()] = p
	return p, nil
}

// namedPolicy returns the policy of a named set, which is new if the limiter has none.
func (l *Limiter) namedPolicy(set RuleSet) (*Policy, error) {
	p := l.named[set.Name()]
	switch {
	case p == nil:
		return l.declare(set)
	case len(set.Declared())+len(set.Others()) > 0 && !set.Equal(p.declared):
		return nil, p.declared.Unlike(set, "already has other rules",
			"declare the set once and share it, or choose another name")
	}
	return p, nil
}

// unnamed returns the policy of a set without a name.
func (l *Limiter) unnamed(set RuleSet, at *door.Place) (*Policy, error) {
	p := &Policy{limiter: l, scope: set.Scope(), declared: set}
	l.mu.Lock()
	defer l.mu.Unlock()
	set, err := l.joined(set)
	if err != nil {
		return nil, err
	}
	p.current.Store(newVersion(p, set))
	if err := p.attachLocked(at); err != nil {
		return nil, err
	}
	if len(l.nameless) == cap(l.nameless) {
		l.nameless = slices.DeleteFunc(l.nameless, func(p weak.Pointer[Policy]) bool { return p.Value() == nil })
	}
	l.nameless = append(l.nameless, weak.Make(p))
	return p, nil
}

// joined returns a set with the rules of the sets that it is With, which it declares.
func (l *Limiter) joined(set RuleSet) (RuleSet, error) {
	for _, other := range set.Others() {
		_, changed := l.changes[other.Name()]
		if l.named[other.Name()] == nil && !changed && !l.lifted && len(other.Declared())+len(other.Others()) == 0 && !other.IsOverridable() {
			continue // Join says that it is unknown
		}
		p, err := l.namedPolicy(other)
		if err != nil {
			return set, err
		}
		l.named[other.Name()] = p
	}
	return set.Join(func(other RuleSet) (RuleSet, bool) {
		if p := l.named[other.Name()]; p != nil {
			return p.current.Load().set, true
		}
		return other, false
	})
}

// declare returns a new policy of a named set, with the rules of Change if it has any.
func (l *Limiter) declare(set RuleSet) (*Policy, error) {
	_, changed := l.changes[set.Name()]
	if changed = changed || l.lifted; changed && len(set.Declared())+len(set.Others()) == 0 {
		set = set.Overridable()
	}
	if err := l.validate(set); err != nil {
		return nil, err
	}
	p := &Policy{limiter: l, scope: set.Scope(), declared: set}
	now := set
	if changed {
		var err error
		if now, err = p.under(l.changes, l.lifted); err != nil {
			return nil, err
		}
	}
	now, err := l.joined(now)
	if err != nil {
		return nil, err
	}
	p.current.Store(newVersion(p, now))
	return p, nil
}

// errNoRules is the error of requests to a policy that only Change defines, before it has.
var errNoRules = fmt.Errorf("%w: the policy has no rules yet: call operate.Change, or follow a policy file, before the program serves", ErrUndecided)

// attach records a place where the policy decides. The error says which of its rules
// could resolve no key there.
func (p *Policy) attach(at door.Place) error {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	return p.attachLocked(&at)
}

func (p *Policy) attachLocked(at *door.Place) error {
	if at == nil || slices.Contains(p.places, *at) { // Change checks its places
		return nil
	}
	err := p.limiter.check(p.current.Load().set, *at)
	if err == nil {
		p.places = append(p.places, *at)
	}
	return err
}

// validate returns what is wrong with a set on this limiter.
func (l *Limiter) validate(set RuleSet) error {
	return errors.Join(set.Validate(), set.CheckClasses(l.options.Classes))
}

// check returns an error that joins one [*rules.Error] for each rule that could
// resolve no key at a place: a rule by user without a function for the
// user, and a rule by a path value that the pattern does not have.
func (l *Limiter) check(set RuleSet, at door.Place) error {
	var errs []error
	wrong := func(rule int, format string, args ...any) { errs = append(errs, set.Errorf(rule, format, args...)) }
	if at.RPC && set.Scope() == rules.ScopeRoute {
		wrong(-1, "rules %s cover many routes: write limit.Named(\"…\", rules…) for one "+
			"quota of all, or limit.EachRoute(rules…) for a quota of each", set)
	}
	for i, rule := range set.Declared() {
		for _, problem := range l.callerProblems(&rule, at) {
			wrong(i, "%s", problem)
		}
		if refusal := rule.Refusal(l.options.OnRefusal); at.RPC && (refusal.Redirect != "" || refusal.Fallback != nil) {
			wrong(i, "a call cannot be redirected, nor sent to another handler: write refuse 429, or Degrade without a Fallback")
		}
		errs = append(errs, set.CheckPattern(i, at.Pattern)...)
	}
	return errors.Join(errs...)
}
