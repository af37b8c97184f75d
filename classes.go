package limit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
)

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
	errs, classes := []error{set.Validate()}, l.options.Classes
	listed := strings.Join(classes, ", ")
	for i, r := range set.Declared() {
		for _, name := range slices.Sorted(maps.Keys(r.Reserve)) {
			switch slices.Index(classes, name) {
			case -1:
				errs = append(errs, set.Errorf(i, "reserve %s: write one of the classes %s, or add it to limit.Options.Classes", name, listed))
			case len(classes) - 1:
				errs = append(errs, set.Errorf(i, "reserve %s: no class is below it: write a higher one", name))
			}
		}
		for _, entry := range r.Exempt {
			if kind, name := grammar.SplitExemption(entry); kind == "class" && !slices.Contains(classes, name) {
				errs = append(errs, set.Errorf(i, "exempt %s: write one of the classes %s, or add it to limit.Options.Classes", entry, listed))
			}
		}
	}
	return errors.Join(errs...)
}
