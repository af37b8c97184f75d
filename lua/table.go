package lua

import "strings"

// Lua has at most 200 local variables in a function. The driver, and what is written into it,
// takes up to 80 of them. If the others are more than mostLocals, so many are left.
const mostLocals, fewerLocals = 120, 100

// writeTable makes fields of a table of functions that are only called, the last ones first, if
// there are too many local variables, as on keys that several algorithms charge.
func (s *script) writeTable() {
	n := s.locals()
	if n <= mostLocals {
		return
	}
	over := n + 1 - fewerLocals
	s.first = "local functions = {}\n" + s.first
	for i := len(s.functions) - 1; i >= 0 && over > 0; i-- {
		f := s.functions[i]
		other := func(text string) bool { return otherwise(text, f.name) }
		if !f.local || f.dropped || s.has(f, other) || other(f.params) || other(f.body) {
			continue
		}
		field := "functions." + f.name
		for _, other := range s.functions {
			other.body = writeCalls(other.body, f.name, field+"(")
			other.behind = writeCalls(other.behind, f.name, field+"(")
		}
		s.main = writeCalls(s.main, f.name, field+"(")
		f.name, f.local = field, false
		over--
	}
}

// locals returns how many local variables there are at the top level before the driver.
func (s *script) locals() (n int) {
	count := func(line string) string {
		if names, ok := strings.CutPrefix(line, "local "); ok {
			names, _, _ = strings.Cut(names, " = ")
			n += 1 + strings.Count(names, ",")
		}
		return line
	}
	rewrite(s.first, "\n", count)
	for _, f := range s.functions {
		if f.local && !f.dropped {
			n++
		}
		rewrite(f.behind, "\n", count)
	}
	return n
}

// otherwise reports whether a text uses a name other than to call a function of the top level.
func otherwise(text, name string) bool {
	for i := range uses(text, name) {
		before := strings.TrimRight(text[:i], " ")
		called := strings.HasPrefix(text[i+len(name):], "(")
		if !called || strings.HasSuffix(before, ".") || strings.HasSuffix(before, "function") {
			return true
		}
	}
	return false
}
