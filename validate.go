package limit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// A RuleError is one thing wrong with a rule, or with a set of rules if Rule
// is empty.
type RuleError struct {
	Rule    string // the rule in the text grammar
	Problem string // what is wrong, and what to write instead
}

func (e *RuleError) Error() string {
	if e.Rule == "" {
		return "limit: " + e.Problem
	}
	return fmt.Sprintf("limit: rule %q: %s", e.Rule, e.Problem)
}

// validate returns an error that joins one [*RuleError] for each thing wrong
// with the set, or nil. Declaring a route with an invalid set panics with the
// same error.
func (s RuleSet) validate() error {
	var errs []error
	if s.scope == scopeNamed && !grammar.ValidName(s.name) {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf(
			"policy name %q: write 1 to %d letters, digits, '.', '_' or '-' (so that it cannot be a route)", s.name, grammar.MaxName)})
	}
	if len(s.rules) == 0 && !s.overridable {
		errs = append(errs, &RuleError{Problem: "no rules: write at least one, such as limit.PerIP(time.Minute, 100)"})
	}
	if len(s.rules) > core.MaxCharges {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf(
			"%d rules: a request is decided by at most %d; split the policy over a group and its routes",
			len(s.rules), core.MaxCharges)})
	}
	if unstruck := slices.IndexFunc(s.rules, func(r Rule) bool { return !r.bars() || r.Settle != (Settlement{}) || r.Cost != (Cost{}) }); unstruck < 0 && len(s.rules) > 0 {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf("rules %s: nothing can strike: "+
			"write a rule whose refusals count, or a Settle such as limit.OnStatus(http.StatusUnauthorized)", s)})
	}
	seen, bars := make(map[string]Rule), s.bars()
	for _, r := range s.rules {
		if bars && r.OnRefusal.Wait > 0 {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: "a request that waits is refused more than once, and each is a " +
				"strike of the ban: leave out the wait or the ban"})
		}
		for _, problem := range slices.Concat(r.problems(), r.functionProblems(), r.refusalProblems(), s.watchProblems(&r), r.planProblems(), r.reserveProblems(), r.exemptProblems()) {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: problem})
		}
		name := r.name()
		if first, twice := seen[name]; twice {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: fmt.Sprintf(
				"the name %q is taken by %q: remove one of them, or give it another Name", name, first)})
		}
		seen[name] = r
	}
	return errors.Join(errs...)
}

// bars reports whether the set has a [Ban].
func (s RuleSet) bars() bool {
	return slices.ContainsFunc(s.rules, func(r Rule) bool { return r.bars() })
}

// problems returns everything wrong with r alone.
func (r *Rule) problems() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }

	list = append(list, r.Key.problems(0)...)
	switch values := r.values(); {
	case !r.shows():
	case values.kind == noKey || values.kind == everyone:
		add("no values: write what is counted, such as Values: limit.ByQuery(\"user\")")
	default:
		list = append(list, values.problems(0)...)
	}
	if !grammar.ValidName(r.name()) {
		add("name %q: write 1 to %d letters, digits, '.', '_' or '-' as its Name", r.name(), grammar.MaxName)
	}
	q := r.quota()
	if q.Algorithm == noAlgorithm {
		add("algorithm %T: write a value of package limit, such as limit.TokenBucket{Burst: 5}, and no pointer", r.Algorithm)
		q.Algorithm = core.FixedWindow // one mistake is reported once
	}
	q.Window = min(max(q.Window, core.MinWindow), core.MaxWindow) // reported below, in the units of this package
	if joined, ok := q.Validate().(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			list = append(list, err.Error())
		}
	}
	windowOK := false
	switch micros := r.window().Microseconds(); {
	case r.calendar().Unit != 0 && r.Window != 0 && r.Window != (&Rule{Algorithm: r.Algorithm}).window():
		add("window %v: leave it out, since the calendar says it", r.Window)
	case micros < core.MinWindow && r.calendar().Unit == 0:
		add("window %v: write at least 1ms (the window comes first, then the limit)", r.Window)
	case micros > core.MaxWindow:
		add("window %v: write at most %dh (366 days)", r.Window, 366*24)
	case r.Window%time.Microsecond != 0:
		add("window %v: write a whole number of microseconds", r.Window)
	default:
		windowOK = micros > 0
	}
	if r.OnStoreError > Refuse {
		add("%v: write Local, Allow or Refuse", r.OnStoreError)
	}
	switch a := r.Algorithm.(type) {
	case Queue:
		if a.MaxWait%time.Microsecond != 0 {
			add("wait %v: write a whole number of microseconds", a.MaxWait)
		}
	case Ban:
		if a.Bar%time.Microsecond != 0 || a.MaxBar%time.Microsecond != 0 {
			add("bars of %v to %v: write whole numbers of microseconds", a.Bar, a.MaxBar)
		}
	}
	if q.Leases() && r.Settle != (Settlement{}) {
		add("a Settle: a lease is released in full when the request is done: leave it out")
	}
	if q.Leases() && windowOK && r.Window < minLease {
		add("window %v: it is how long a lease lives that is not renewed: write at least %v", r.Window, minLease)
	}
	return list
}
