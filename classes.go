package limit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// reserveProblems returns what is wrong with the reserve of r, whatever the classes.
func (r Rule) reserveProblems() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if len(r.Reserve) == 0 {
		return nil
	}
	if r.hidden() {
		add("%v leaves no reserve: leave it out, or write another algorithm", r.Algorithm)
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
