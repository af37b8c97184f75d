package limit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// A Rule allows at most Limit requests in any window of length Window to all
// requests that share a key. The zero Rule is invalid: Key, Limit and Window
// are required.
//
// [PerIP], [PerUser], [PerHeader], [Per] and [Global] are short for the
// usual literals.
type Rule struct {
	// Name stands in headers, logs and the key of the stored state: letters,
	// digits, '.', '_' and '-', at most 64 of them, unique among the rules of
	// a policy. Empty means the key and the window, such as "per-ip-2s". A
	// rule keeps its state when its limit changes, and under a name of its own
	// also when its window does.
	Name string

	// Key says who shares the quota.
	Key KeyResolver

	// Limit is how many requests any window admits: 1 to 100,000.
	Limit int64

	// Window is a whole number of microseconds from 1 ms to 366 days.
	Window time.Duration
}

// Per returns a rule that allows limit requests in any window to all requests
// that share a key.
func Per(key KeyResolver, window time.Duration, limit int64) Rule {
	return Rule{Key: key, Limit: limit, Window: window}
}

// PerIP returns a rule for each client address. See [ByIP].
func PerIP(window time.Duration, limit int64) Rule { return Per(ByIP, window, limit) }

// PerUser returns a rule for each user. See [ByUser].
func PerUser(window time.Duration, limit int64) Rule { return Per(ByUser, window, limit) }

// PerHeader returns a rule for each value of a header. See [ByHeader].
func PerHeader(name string, window time.Duration, limit int64) Rule {
	return Per(ByHeader(name), window, limit)
}

// Global returns a rule that everyone on the policy shares.
func Global(window time.Duration, limit int64) Rule { return Per(Everyone, window, limit) }

// A RuleSet is the rules stacked on a route: a request is admitted only if
// every rule passes, and otherwise spends nothing. It is immutable, and it is
// used by handing it to a [Limiter] or an adapter.
//
// Without a name of its own, a set is one policy for each route that it stands
// on ("POST /update"), with its own quotas. A set made by [Named] is one
// policy, whose quotas all of its routes share.
type RuleSet struct {
	name  string
	named bool // by Named, even if by ""
	rules []Rule
}

// Rules stacks rules.
func Rules(rules ...Rule) RuleSet { return RuleSet{rules: slices.Clone(rules)} }

// Named stacks rules into a policy with a name, whose quotas are shared by all
// routes that it stands on, and by [Limiter.Take]. The name is made as that of
// a [Rule].
func Named(policy string, rules ...Rule) RuleSet {
	return RuleSet{name: policy, named: true, rules: slices.Clone(rules)}
}

// Name returns the name given by [Named], or "".
func (s RuleSet) Name() string { return s.name }

// Rules returns the rules, with the names that they go by.
func (s RuleSet) Rules() []Rule {
	rules := slices.Clone(s.rules)
	for i := range rules {
		rules[i].Name = rules[i].name()
	}
	return rules
}

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

// Validate returns an error that joins one [*RuleError] for each thing wrong
// with the set, or nil. Declaring a route with an invalid set panics with the
// same error.
func (s RuleSet) Validate() error {
	var errs []error
	if s.named && !validName(s.name) {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf(
			"policy name %q: write 1 to %d letters, digits, '.', '_' or '-', which no route is", s.name, maxName)})
	}
	if len(s.rules) == 0 {
		errs = append(errs, &RuleError{Problem: "no rules: write at least one, such as limit.PerIP(time.Minute, 100)"})
	}
	if len(s.rules) > core.MaxCharges {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf(
			"%d rules: a request is decided by at most %d; split the policy over a group and its routes",
			len(s.rules), core.MaxCharges)})
	}
	seen := make(map[string]Rule)
	for _, r := range s.rules {
		for _, problem := range r.problems() {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: problem})
		}
		name := r.name()
		if first, twice := seen[name]; twice {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: fmt.Sprintf(
				"the name %q is taken by %q: drop one of them, or give it another Name", name, first)})
		}
		seen[name] = r
	}
	return errors.Join(errs...)
}

// problems returns everything wrong with r alone.
func (r Rule) problems() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }

	list = append(list, r.Key.problems(0)...)
	if !validName(r.name()) {
		add("name %q: write 1 to %d letters, digits, '.', '_' or '-' as its Name", r.name(), maxName)
	}
	if r.Limit < 1 {
		add("limit %d: write at least 1", r.Limit)
	} else if r.Limit > core.MaxLog {
		add("limit %d is too large for an exact window, which logs each request: write at most %d, "+
			"such as the same rate over a shorter window", r.Limit, core.MaxLog)
	}
	switch micros := r.Window.Microseconds(); {
	case micros < core.MinWindow:
		add("window %v: write at least 1ms (the window comes first, then the limit)", r.Window)
	case micros > core.MaxWindow:
		add("window %v: write at most %dh (366 days)", r.Window, 366*24)
	case r.Window%time.Microsecond != 0:
		add("window %v: write a whole number of microseconds", r.Window)
	}
	return list
}

// quota returns what a valid rule allows, in the units of package core.
func (r Rule) quota() core.Quota {
	return core.Quota{Algorithm: core.SlidingLog, Limit: r.Limit, Window: r.Window.Microseconds()}
}

const maxName = 64

// name returns the name that r goes by.
func (r Rule) name() string {
	if r.Name != "" {
		return r.Name
	}
	name := "per-" + r.Key.String()
	if r.Key.kind == everyone {
		name = r.Key.String()
	}
	name += "-" + formatWindow(r.Window)
	return strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case c == 'µ':
			return 'u'
		case validNameByte(c):
			return c
		}
		return '-'
	}, name)
}

func validName(name string) bool {
	return name != "" && len(name) <= maxName &&
		!strings.ContainsFunc(name, func(c rune) bool { return !validNameByte(c) })
}

func validNameByte(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}

// equal reports whether r and s are the same rule. Functions of [By] are taken
// to be the same if their names are.
func (r Rule) equal(s Rule) bool {
	return r.name() == s.name() && r.Key.label == s.Key.label && r.Limit == s.Limit && r.Window == s.Window
}

// same reports whether s and t are one declaration.
func (s RuleSet) same(t RuleSet) bool {
	return s.name == t.name && len(s.rules) == len(t.rules) &&
		(len(s.rules) == 0 || &s.rules[0] == &t.rules[0])
}
