package rules

import (
	"slices"

	"github.com/routelimit/limit/internal/grammar"
)

// With returns s together with the rules of other sets, which must be Named. All are decided
// at once: a request is admitted only if every rule has room, and is otherwise charged to
// none. The rules of s keep the scope of s. Those of the others charge the quotas that they
// charge everywhere else, and follow every change of their sets:
//
//	application := limit.Named("app", limit.Global(time.Minute, 1000))
//	limit.Rules(limit.PerIP(2*time.Second, 5)).With(application)
//
// A set without rules, such as limit.Named("app"), means the one of that name that the
// limiter knows. A rule of another set goes by its policy and its name, such as
// "app.global-1m", if several rules here have that name.
func (s Set) With(others ...Set) Set {
	s.with = append(append([]Set{}, s.with...), others...)
	s.withAt = nil
	return s
}

// Others returns the sets that [Set.With] was given.
func (s Set) Others() []Set { return slices.Clone(s.with) }

// Resolve returns s with the rules of the sets that it is With: those that find returns by
// name, and nil for an unknown one.
func (s Set) Resolve(find func(name string) *Set) Set {
	return s.resolve(find, nil)
}

func (s Set) resolve(find func(name string) *Set, within []string) Set {
	s.with = slices.Clone(s.with)
	within = append(slices.Clip(within), s.name)
	for i, other := range s.with {
		if slices.Contains(within, other.name) {
			continue // an error of Join
		}
		if found := find(other.name); found != nil {
			other = *found
		}
		s.with[i] = other.resolve(find, within)
	}
	return s
}

// An origin is where a rule of another set is from.
type origin struct{ policy, rule string }

// own returns how many rules s has of its own. They come first.
func (s *Set) own() int { return len(s.rules) - len(s.from) }

// Origin returns the policy and the name under which a rule of another set is known, or ""
// for a rule of s.
func (s Set) Origin(rule int) (policy, name string) {
	if rule < s.own() {
		return "", ""
	}
	from := s.from[rule-s.own()]
	return from.policy, from.rule
}

// Join returns s with the rules of the sets that it is With, for package limit. Find returns
// the set of the name of another one, and whether there is any. As long as one of them has
// no rules, the joined set has none.
func (s Set) Join(find func(Set) (Set, bool)) (Set, error) {
	if s.with == nil {
		return s, nil
	}
	j := joining{find: find, Set: s, declared: &s}
	j.rules, j.from = cloned(s.rules[:s.own()]), nil
	if len(j.at) > 0 {
		j.at = slices.Clone(s.at[:s.own()])
	}
	for i := range s.with {
		if err := j.add(s.with[i], i); err != nil {
			return Set{}, err
		}
	}
	if j.pending {
		j.rules, j.from, j.at = nil, nil, nil
	}
	j.qualify()
	return j.Set, j.Set.Validate()
}

// A joining is a set that gets the rules of others.
type joining struct {
	Set
	declared *Set
	find     func(Set) (Set, bool)
	names    []string // of the sets so far
	pending  bool     // whether one of them has no rules yet
}

// add adds the rules of a set, and those of the sets that it is With itself.
func (j *joining) add(other Set, clause int) error {
	switch {
	case j.scope == ScopeNamed && other.name == j.name:
		return j.declared.errorWith(clause, "with %s: a set is not with itself: leave it out", other.name)
	case slices.Contains(j.names, other.name):
		return nil
	}
	j.names = append(j.names, other.name)
	set, ok := j.find(other)
	if !ok {
		return j.declared.errorWith(clause, "with %s: no policy has that name: declare limit.Named(%q, rules…) before, or add the policy to the file",
			other.name, other.name)
	}
	j.lifted = j.lifted || set.lifted
	j.pending = j.pending || len(set.rules) == 0 && set.with == nil && !set.lifted
	for _, r := range cloned(set.rules[:set.own()]) {
		j.rules = append(j.rules, r)
		j.from = append(j.from, origin{other.name, r.name()})
		if len(j.withAt) > 0 {
			j.at = append(j.at, j.withAt[clause])
		}
	}
	for _, next := range set.with {
		if j.scope == ScopeNamed && next.name == j.name {
			return j.declared.errorWith(clause, "with %s: policy %q is with this one: leave out one of the two", other.name, other.name)
		}
		if err := j.add(next, clause); err != nil {
			return err
		}
	}
	return nil
}

// qualify names the rules of other sets apart that share their names.
func (j *joining) qualify() {
	count := make(map[string]int)
	for i := range j.rules {
		count[j.rules[i].name()]++
	}
	named := make(map[origin]string) // the rules that are qualified
	others := j.rules[j.own():]
	for i := range others {
		if from := j.from[i]; count[from.rule] > 1 {
			others[i].Name = from.policy + "." + from.rule
			named[from] = others[i].Name
		}
	}
	for i := range others {
		if shadow := others[i].Shadow; shadow != nil {
			if name, ok := named[origin{j.from[i].policy, shadow.Replaces}]; ok {
				shadow.Replaces = name // a copy
			}
		}
	}
}

// errorWith returns an error about a set that s is With.
func (s *Set) errorWith(clause int, format string, args ...any) *Error {
	e := s.Errorf(-1, format, args...)
	if clause < len(s.withAt) {
		e.Text, e.Offset = s.text, s.withAt[clause]
	}
	return e
}

// checkWith reports what is wrong with the sets that s is With, as far as s says it.
func (s *Set) checkWith(p *problems) {
	if s.with != nil && len(s.with) == 0 {
		p.addf("With has no set: write one, such as With(limit.Named(\"app\", limit.Global(time.Minute, 1000))), or leave it out")
	}
	for i, other := range s.with {
		wrong := func(format string, args ...any) { p.errs = append(p.errs, s.errorWith(i, format, args...)) }
		switch same := func(o Set) bool { return o.name == other.name }; {
		case other.scope != ScopeNamed:
			wrong("With rules %s, which have no name: write limit.Named(\"…\", rules…) for them, since other places share their quotas", other)
		case !grammar.ValidName(other.name):
			wrong("With policy name %q: write 1 to %d letters, digits, '.', '_' or '-'", other.name, grammar.MaxName)
		case s.scope == ScopeNamed && other.name == s.name:
			wrong("with %s: a set is not with itself: leave it out", other.name)
		case slices.ContainsFunc(s.with[:i], same):
			wrong("with %s: it stands twice: remove one", other.name)
		case len(other.rules) > 0 || other.with != nil:
			if err := other.Validate(); err != nil && len(s.from) == 0 { // which a joined set has reported
				p.errs = append(p.errs, err)
			}
		}
	}
}
