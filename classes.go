package limit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
)

// reserveProblems returns what is wrong with the reserve of r, whatever the classes.
func (r *Rule) reserveProblems() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if len(r.Reserve) == 0 {
		return nil
	}
	if r.noQuota() {
		add("%v leaves no reserve: leave it out, or write another algorithm", r.algorithm())
	}
	if len(r.Reserve) > grammar.MaxCallers {
		add("%d reserves: write at most %d", len(r.Reserve), grammar.MaxCallers)
		return list
	}
	sum := int64(0)
	for _, name := range slices.Sorted(maps.Keys(r.Reserve)) {
		switch n := r.Reserve[name]; {
		case !grammar.ValidName(name):
			add("reserve %q: write 1 to %d letters, digits, '.', '_' or '-'", name, grammar.MaxName)
		case n < 1 || n > core.MaxLimit:
			add("reserve %s %d: write 1 or more units, or leave it out", name, n)
		default:
			sum += n // at most 64 times 10^12
		}
	}
	if q := r.quota(); q.Validate() == nil && sum >= q.Capacity() {
		add("reserves of %d units: the rule has %d: leave at least one for the lowest class", sum, q.Capacity())
	}
	return list
}

// maxClasses bounds [Options].Classes.
const maxClasses = 16

// validClasses returns what is wrong with [Options].Classes.
func validClasses(classes []string) error {
	if classes == nil {
		return nil
	}
	var errs []error
	if !slices.Contains(classes, grammar.DefaultClass) || len(classes) > maxClasses {
		errs = append(errs, fmt.Errorf("limit: Classes %q: write at most %d, with %q for requests without a class", classes, maxClasses, grammar.DefaultClass))
	}
	for i, name := range classes {
		if !grammar.ValidName(name) || slices.Contains(classes[:i], name) {
			errs = append(errs, fmt.Errorf("limit: Classes[%d] %q: write different names of 1 to %d letters, digits, '.', '_' or '-'", i, name, grammar.MaxName))
		}
	}
	return errors.Join(errs...)
}

// class returns the index of a class.
func (l *Limiter) class(name string) uint8 {
	i := slices.Index(l.options.Classes, name)
	if i < 0 {
		i = slices.Index(l.options.Classes, grammar.DefaultClass)
		if name != "" && !l.notices.unknownClass.Load() && !l.notices.unknownClass.Swap(true) {
			notice.Write(l.log(), notice.UnknownClass, "limit: a request has a class that limit.Options.Classes does not list, and counts as default",
				0, "class", strings.Clone(name[:min(len(name), grammar.MaxName)]), "classes", strings.Join(l.options.Classes, ", "))
		}
	}
	return uint8(i)
}

// validate returns what is wrong with a set on this limiter.
func (l *Limiter) validate(set RuleSet) error {
	errs := []error{set.validate()}
	classes := l.options.Classes
	for _, r := range set.rules {
		wrong := func(format string, args ...any) {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: fmt.Sprintf(format, args...)})
		}
		for _, name := range slices.Sorted(maps.Keys(r.Reserve)) {
			switch slices.Index(classes, name) {
			case -1:
				wrong("reserve %s: write one of the classes %s, or add it to limit.Options.Classes", name, strings.Join(classes, ", "))
			case len(classes) - 1:
				wrong("reserve %s: no class is below it: write a higher one", name)
			}
		}
		for _, entry := range r.Exempt {
			if kind, name := grammar.SplitExemption(entry); kind == "class" && !slices.Contains(classes, name) {
				wrong("exempt %s: write one of the classes %s, or add it to limit.Options.Classes", entry, strings.Join(classes, ", "))
			}
		}
	}
	return errors.Join(errs...)
}
