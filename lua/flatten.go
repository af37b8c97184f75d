package lua

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// flatten rewrites a script so that a call defines and calls fewer functions: most
// of the cost of a lone decision is what the script defines anew in every call. The
// result decides as the text does. The rules go by the lines of the text:
//
//   - Comments are left out, and marks such as "-- @extra" at the end of a line: see
//     file in script.go.
//   - A call of a function that is marked "-- @rare" becomes a function expression,
//     so that it is defined only where it is reached.
//   - A line that ends in "-- @inline" becomes the body of the function that it calls.
//     Where an argument has the name of a parameter, they are one variable.
//   - A line that ends in "-- @each" calls a function of the rule's algorithm. It
//     becomes the bodies of these functions, each behind a comparison. Algorithms
//     whose functions have no definition of the form "function x.load(…)", or one
//     with a return that is not marked rare, are called as before.
//   - A function that the script does not name any more is left out, and one that small(…)
//     gets and nothing reads. One whose calls have become its body stays if the script also
//     calls it as as['name'].
//   - A line that ends in "-- @sole" says that the driver calls all hooks that are called, so
//     others and tables that nothing names any more are left out, as in taketallied.lua, which
//     calls whole. If the script has one algorithm, so is the line, and rule.as in the driver
//     becomes the name of the algorithm.
//   - A local in capitals that is a number becomes the number, since a local costs each
//     function that names it.
//
// flatten panics on a text that it cannot rewrite, which is a mistake in the files. It does
// not see a body that is written where a name of the top level means something else:
// TestFlattened in package redisstore compares what both texts decide.
func flatten(text string) string { return flattened(text).String() }

func flattened(text string) *script {
	s := &script{}
	s.read(writeConstants(strip(text)))
	for _, f := range s.functions {
		if f.rare {
			s.writeRare(f)
		}
	}
	for _, f := range s.functions {
		f.body = rewrite(f.body, inlineMark, s.writeInline)
	}
	s.sole = strings.Contains(s.main, soleMark)
	s.one = s.sole && len(s.registered) == 1
	s.main = rewrite(s.main, eachMark, s.writeEach)
	if s.one {
		s.writeSole()
	}
	s.main = strings.ReplaceAll(s.main, soleMark, "\n")
	for s.dropUnused() || s.dropFields() || (s.sole || strings.Contains(s.main, "return whole()")) && s.dropTables() {
	}
	return s
}

const (
	rareMark   = "-- @rare\n"
	inlineMark = " -- @inline\n"
	eachMark   = " -- @each\n"
	soleMark   = " -- @sole\n"
)

// These are for single lines: on a whole script each of them took milliseconds.
var (
	constants  = regexp.MustCompile(`^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)\n`)
	definition = regexp.MustCompile(`^(local )?function ([\w.]+)\(([^)]*)\)(?: (.*) end)?\n`)
	eachLine   = regexp.MustCompile(`^ *(?:if rule\.as\.\w+ then |(\w+) = )?rule\.as\.(\w+)\((.*?)\)(?: end)? -- @each\n`)
	inlineLine = regexp.MustCompile(`^ *([\w.]+)\((.*?)\) -- @inline\n`)
	smallLine  = regexp.MustCompile(`small\((.*)\)`)
	tables     = regexp.MustCompile(`^local (\w+(?:, \w+)*) = (?:\{.*\}|\w+)\n`)
	registered = regexp.MustCompile(`^algorithms\[\d+\] = (\w+)\n`)
)

// rewrite replaces the lines of a text that end in a mark.
func rewrite(text, mark string, replace func(line string) string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasSuffix(line, mark) {
			line = replace(line)
		}
		b.WriteString(line)
	}
	return b.String()
}

// strip leaves out comments, but for marks that flatten reads.
func strip(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line == rareMark {
			b.WriteString(line)
			continue
		}
		if strings.HasPrefix(strings.TrimLeft(line, " "), "--") {
			continue
		}
		if i := strings.Index(line, " -- "); i >= 0 && (line[i+len(" -- ")] != '@' || !strings.HasSuffix(line, inlineMark) && !strings.HasSuffix(line, eachMark) && !strings.HasSuffix(line, soleMark)) {
			line = strings.TrimRight(line[:i], " ") + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// writeConstants writes the numbers that locals in capitals are where these are named.
func writeConstants(text string) string {
	numbers := make(map[string]string)
	text = rewrite(text, "\n", func(line string) string {
		m := constants.FindStringSubmatch(line)
		if m == nil {
			return line
		}
		values := strings.Split(m[2], ", ")
		for i, name := range strings.Split(m[1], ", ") {
			numbers[name] = values[i]
		}
		return ""
	})
	var b strings.Builder
	for i := 0; i < len(text); {
		end := i
		for end < len(text) && isWord(text[end]) == isWord(text[i]) {
			end++
		}
		part := text[i:end]
		if n, known := numbers[part]; known {
			part = n
		}
		b.WriteString(part)
		i = end
	}
	return b.String()
}

// A script is the text of a script in parts. All functions are at the top level.
type script struct {
	first      string
	functions  []*function
	registered []string // the tables of algorithms
	main       string   // what follows the last function
	sole       bool     // whether only the driver calls hooks
	one        bool     // whether it is also the script of one algorithm
}

type function struct {
	local, rare, dropped bool
	returns              bool // whether the body has a return
	name, params, body   string
	behind               string // the text up to the next function
	written              bool   // whether each call of it by the driver has become its body
}

func (s *script) read(text string) {
	behind := &s.first
	var open *function // whose body is being read
	at, next := 0, 0
	for line := range strings.Lines(text) {
		start := next
		next += len(line)
		if open != nil {
			if line == "end\n" {
				open.body, open, at = text[at:start], nil, next
			}
			continue
		}
		if m := registered.FindStringSubmatch(line); m != nil {
			s.registered = append(s.registered, m[1])
		}
		m := definition.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f := &function{local: m[1] != "", name: m[2], params: m[3], body: m[4]}
		*behind, f.rare = strings.CutSuffix(text[at:start], rareMark)
		behind, at = &f.behind, next
		if slices.ContainsFunc(s.functions, func(other *function) bool { return other.name == f.name }) {
			panic(fmt.Sprintf("lua: two functions are %s", f.name))
		}
		s.functions = append(s.functions, f)
		if f.body == "" {
			open = f
		}
	}
	s.main = text[at:]
	for _, f := range s.functions {
		f.returns = mentions(f.body, "return", "")
	}
}

func (s *script) String() string {
	var b strings.Builder
	b.WriteString(s.first)
	for _, f := range s.functions {
		b.WriteString(f.String())
		b.WriteString(f.behind)
	}
	b.WriteString(s.main)
	return b.String()
}

func (f *function) String() string {
	keyword := "function "
	switch {
	case f.dropped:
		return ""
	case f.local:
		keyword = "local function "
	}
	return keyword + f.name + f.expression()[len("function"):] + "\n"
}

func (f *function) expression() string {
	return "function(" + f.params + ")\n" + strings.TrimRight(f.body, "\n") + "\nend"
}

// writeRare writes a function where others, or the driver, call it.
func (s *script) writeRare(f *function) {
	f.dropped = true
	expression := "(" + f.expression() + ")("
	for _, other := range s.functions {
		if other != f {
			other.body = writeCalls(other.body, f.name, expression)
		}
	}
	s.main = writeCalls(s.main, f.name, expression)
}

// writeCalls writes an expression where a text calls a function.
func writeCalls(text, name, expression string) string {
	var b strings.Builder
	at := 0
	for i := range uses(text, name) {
		if !strings.HasPrefix(text[i+len(name):], "(") || i > 0 && text[i-1] == '.' {
			continue
		}
		before := strings.TrimRight(text[at:i], " ")
		if before == "" && at == 0 || strings.HasSuffix(before, "\n") {
			before += "do end " // or it might go on with the line before
		} else {
			before = text[at:i]
		}
		b.WriteString(before)
		b.WriteString(expression)
		at = i + len(name) + len("(")
	}
	if at == 0 {
		return text
	}
	b.WriteString(text[at:])
	return b.String()
}

// writeInline writes what becomes of a line of a function that ends in @inline.
func (s *script) writeInline(line string) string {
	m := inlineLine.FindStringSubmatch(line)
	i := slices.IndexFunc(s.functions, func(f *function) bool { return f.name == m[1] })
	if i < 0 || s.functions[i].returns || strings.Contains(s.functions[i].body, inlineMark) {
		panic(fmt.Sprintf("lua: flatten cannot write %s inline", m[1]))
	}
	f := s.functions[i]
	return "do\n" + assign(f.params, m[2]) + strings.TrimRight(f.body, "\n") + "\nend\n"
}

// writeEach writes what becomes of a line that ends in @each.
func (s *script) writeEach(line string) string {
	m := eachLine.FindStringSubmatch(line)
	result, hook, args := m[1], m[2], m[3]
	call := strings.TrimSuffix(line, eachMark)
	optional := strings.Contains(line, "if rule.as.")
	var b strings.Builder
	keyword, others := "if", false
	branch := func(owner, body string) {
		if s.one {
			fmt.Fprintf(&b, "do\n%s\n", body)
		} else {
			fmt.Fprintf(&b, "%s rule.as == %s then\n%s\n", keyword, owner, body)
		}
		keyword = "elseif"
	}
	for _, f := range s.functions {
		owner, name, _ := strings.Cut(f.name, ".")
		if name != hook {
			continue
		}
		if f.rare {
			branch(owner, result+" = ("+f.expression()+")("+args+")")
			f.written = true
		} else if result == "" && !f.returns {
			branch(owner, assign(f.params, args)+strings.TrimRight(f.body, "\n"))
			f.written = true
		} else {
			others = true
		}
	}
	for _, owner := range s.registered {
		others = others || !slices.ContainsFunc(s.functions, func(f *function) bool { return f.name == owner+"."+hook })
	}
	switch {
	case optional: // only a function with a definition of its own may be optional
	case others && keyword == "if":
		return call + "\n"
	case others:
		b.WriteString("else\n" + call + "\n")
	}
	if keyword == "if" {
		return ""
	}
	return b.String() + "end\n"
}

// writeSole writes the name of the only algorithm where the driver asks for it.
func (s *script) writeSole() {
	s.main = rewrite(s.main, soleMark, func(string) string { return "" })
	s.main = strings.ReplaceAll(s.main, "rule.as.", s.registered[0]+".")
	s.top(func(line string) string {
		if registered.MatchString(line) {
			return ""
		}
		return line
	})
}

// dropTables drops the tables that nothing names, and reports whether there was any.
func (s *script) dropTables() (any bool) {
	s.top(func(line string) string {
		m := tables.FindStringSubmatch(line)
		if m == nil {
			return line
		}
		for _, name := range strings.Split(m[1], ", ") {
			if s.has(nil, func(text string) bool {
				return mentions(strings.ReplaceAll(strings.Replace(text, line, "", 1), name+" = ", ""), name, ".")
			}) {
				return line
			}
		}
		any = true
		return ""
	})
	return any
}

// top rewrites the lines outside of functions.
func (s *script) top(replace func(line string) string) {
	s.first = rewrite(s.first, "\n", replace)
	for _, f := range s.functions {
		f.behind = rewrite(f.behind, "\n", replace)
	}
	s.main = rewrite(s.main, "\n", replace)
}

// assign gives the parameters of a body the values of the arguments of a call.
func assign(params, args string) string {
	var to, from []string
	all := strings.Split(args, ", ")
	for i, p := range strings.Split(params, ", ") {
		if all[i] != p {
			to, from = append(to, p), append(from, all[i])
		}
	}
	if to == nil {
		return ""
	}
	return "local " + strings.Join(to, ", ") + " = " + strings.Join(from, ", ") + "\n"
}

// uses yields where a text has a name that is no part of a longer word. One that begins with a
// dot may follow any.
func uses(text, name string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := 0; ; at += len(name) {
			i := strings.Index(text[at:], name)
			if i < 0 {
				return
			}
			at += i
			end := at + len(name)
			within := name[0] != '.' && at > 0 && isWord(text[at-1]) || end < len(text) && isWord(text[end])
			if !within && !yield(at) {
				return
			}
		}
	}
}

// mentions reports whether a text uses a name that none of the given characters precedes.
func mentions(text, name, before string) bool {
	for i := range uses(text, name) {
		if i == 0 || strings.IndexByte(before, text[i-1]) < 0 {
			return true
		}
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// dropUnused drops the functions that nothing calls, and reports whether there were any.
func (s *script) dropUnused() (any bool) {
	for _, f := range s.functions {
		if f.dropped {
			continue
		}
		_, hook, owned := strings.Cut(f.name, ".")
		f.dropped = !s.has(f, func(text string) bool {
			return mentions(text, f.name, ".") || owned && strings.ContainsAny(text, " (\n") && // and not the name of another's hook
				(!f.written && mentions(text, "."+hook, "") || strings.Contains(text, "['"+hook+"']"))
		})
		any = any || f.dropped
	}
	return any
}

// has reports whether a part of the script other than a function is what is looked for.
func (s *script) has(but *function, wanted func(text string) bool) bool {
	return wanted(s.first) || wanted(s.main) || slices.ContainsFunc(s.functions, func(f *function) bool {
		return wanted(f.behind) || f != but && !f.dropped && (wanted(f.name) || wanted(f.params) || wanted(f.body))
	})
}

// dropFields drops hooks of small(…) that nothing reads, and reports whether there was any.
func (s *script) dropFields() (any bool) {
	names := [...]string{".decode", ".step", ".later", ".encode"}
	for _, f := range s.functions {
		if !strings.Contains(f.behind, "small(") {
			continue
		}
		f.behind = smallLine.ReplaceAllStringFunc(f.behind, func(line string) string {
			list := strings.Split(smallLine.FindStringSubmatch(line)[1], ", ")
			for i, name := range names {
				reads := func(text string) bool { return mentions(text, name, "") }
				if list[i] != "nil" && !(s.sole && reads(s.main) || !s.sole && s.has(nil, reads)) {
					list[i], any = "nil", true
				}
			}
			if s.sole && strings.Join(list, "") == strings.Repeat("nil", len(names)) {
				return "{}"
			}
			return "small(" + strings.Join(list, ", ") + ")"
		})
	}
	return any
}
