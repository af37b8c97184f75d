package lua

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
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
//   - A local in capitals that is a number becomes the number, since a local costs each
//     function that names it.
//
// flatten panics on a text that it cannot rewrite, which is a mistake in the files. It does
// not see a body that is written where a name of the top level means something else:
// TestFlattened in package redisstore compares what both texts decide.
func flatten(text string) string {
	s := &script{}
	s.read(writeConstants(marked.ReplaceAllString(commentEnd.ReplaceAllString(commentLine.ReplaceAllString(text, ""), ""), "\n")))
	for _, f := range s.functions {
		if f.rare {
			s.writeRare(f)
		}
	}
	for _, f := range s.functions {
		f.body = inlineLine.ReplaceAllStringFunc(f.body, s.writeInline)
	}
	s.main = eachLine.ReplaceAllStringFunc(s.main, s.writeEach)
	for s.dropUnused() || s.dropFields() {
	}
	return s.String()
}

var (
	commentLine = regexp.MustCompile(`(?m)^ *--(?: [^@].*|| @(?:needs|value|returned).*)\n`)
	commentEnd  = regexp.MustCompile(`(?m) +-- [^@].*$`)
	marked      = regexp.MustCompile(` -- @(?:extra|several|debt|take|tallies)\n`)
	constants   = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)(?: --.*)?\n`)
	definition  = regexp.MustCompile(`(?ms)^(-- @rare\n)?(local )?function ([\w.]+)\(([^)\n]*)\)(?:\n(.*?)^| ([^\n]*) )end\n`)
	capitals    = regexp.MustCompile(`\b[A-Z_]+\b`)
	eachLine    = regexp.MustCompile(`(?m)^ *(?:if rule\.as\.\w+ then |(\w+) = )?rule\.as\.(\w+)\((.*?)\)(?: end)? -- @each\n`)
	inlineLine  = regexp.MustCompile(`(?m)^ *([\w.]+)\((.*?)\) -- @inline\n`)
	smallLine   = regexp.MustCompile(`small\((.*)\)`)
	registered  = regexp.MustCompile(`(?m)^algorithms\[\d+\] = (\w+)$`)
)

// writeConstants writes the numbers that locals in capitals are where these are named.
func writeConstants(text string) string {
	numbers := make(map[string]string)
	text = constants.ReplaceAllStringFunc(text, func(line string) string {
		m := constants.FindStringSubmatch(line)
		values := strings.Split(m[2], ", ")
		for i, name := range strings.Split(m[1], ", ") {
			numbers[name] = values[i]
		}
		return ""
	})
	return capitals.ReplaceAllStringFunc(text, func(name string) string {
		if n, known := numbers[name]; known {
			return n
		}
		return name
	})
}

// A script is the text of a script in parts: what is behind each function, and the
// functions, which are all at the top level.
type script struct {
	first     string
	functions []*function
	main      string // what follows the last function
}

type function struct {
	local, rare, dropped bool
	returns              bool // whether the body has a return
	name, params, body   string
	behind               string // the text up to the next function
	written              bool   // whether each call of it by the driver has become its body
}

func (s *script) read(text string) {
	at := 0
	for _, m := range definition.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		if n := len(s.functions); n == 0 {
			s.first = text[:m[0]]
		} else {
			s.functions[n-1].behind = text[at:m[0]]
		}
		f := &function{rare: part(1) != "", local: part(2) != "", name: part(3), params: part(4), body: part(5) + part(6)}
		if slices.ContainsFunc(s.functions, func(other *function) bool { return other.name == f.name }) {
			panic(fmt.Sprintf("lua: two functions are %s", f.name))
		}
		f.returns = slices.Contains(words(f.body), "return")
		s.functions = append(s.functions, f)
		at = m[1]
	}
	s.main = text[at:]
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
	call := regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(f.name) + `\(`)
	statement := regexp.MustCompile(`(?m)^ *` + regexp.QuoteMeta(f.name) + `\(`)
	replace := func(text *string) {
		if strings.Contains(*text, f.name+"(") { // cheaper than the expression
			*text = statement.ReplaceAllString(*text, "do end "+f.name+"(") // or it might go on with the line before
			*text = call.ReplaceAllString(*text, "${1}("+strings.ReplaceAll(f.expression(), "$", "$$")+")(")
		}
	}
	for _, other := range s.functions {
		if other != f {
			replace(&other.body)
		}
	}
	replace(&s.main)
}

// writeInline writes what becomes of a line of a function that ends in @inline.
func (s *script) writeInline(line string) string {
	m := inlineLine.FindStringSubmatch(line)
	i := slices.IndexFunc(s.functions, func(f *function) bool { return f.name == m[1] })
	if i < 0 || s.functions[i].returns || inlineLine.MatchString(s.functions[i].body) {
		panic(fmt.Sprintf("lua: flatten cannot write %s inline", m[1]))
	}
	f := s.functions[i]
	return "do\n" + assign(f.params, m[2]) + strings.TrimRight(f.body, "\n") + "\nend\n"
}

// writeEach writes what becomes of a line that ends in @each.
func (s *script) writeEach(line string) string {
	m := eachLine.FindStringSubmatch(line)
	result, hook, args := m[1], m[2], m[3]
	call, _, _ := strings.Cut(line, " -- @each")
	optional := strings.Contains(line, "if rule.as.")
	var b strings.Builder
	keyword, others := "if", false
	branch := func(owner, body string) {
		fmt.Fprintf(&b, "%s rule.as == %s then\n%s\n", keyword, owner, body)
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
	for _, m := range registered.FindAllStringSubmatch(s.String(), -1) {
		others = others || !slices.ContainsFunc(s.functions, func(f *function) bool { return f.name == m[1]+"."+hook })
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

// mentions reports whether a text has a name that no other letter follows, and that
// neither a letter nor one of the given characters precedes unless it begins with a
// dot. A regular expression for each name took a tenth of a second for a script.
func mentions(text, name, before string) bool {
	for {
		i := strings.Index(text, name)
		if i < 0 {
			return false
		}
		rest := text[i+len(name):]
		follows := rest != "" && isWord(rest[0])
		precedes := i > 0 && name[0] != '.' && (isWord(text[i-1]) || strings.IndexByte(before, text[i-1]) >= 0)
		if !follows && !precedes {
			return true
		}
		text = rest
	}
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf || !isWord(byte(r)) })
}

// dropUnused drops the functions that nothing calls, and reports whether there
// were any.
func (s *script) dropUnused() (any bool) {
	for _, f := range s.functions {
		if f.dropped {
			continue
		}
		f.dropped = true
		rest := s.String()
		_, hook, owned := strings.Cut(f.name, ".")
		used := mentions(rest, f.name, ".")
		if owned {
			used = used || !f.written && mentions(rest, "."+hook, "") || strings.Contains(rest, "['"+hook+"']")
		}
		f.dropped = !used
		any = any || f.dropped
	}
	return any
}

// dropFields drops the functions of algorithms with a small state that nothing reads, and
// reports whether there was any.
func (s *script) dropFields() (any bool) {
	all := s.String()
	names := [...]string{".decode", ".step", ".later", ".encode"}
	for _, f := range s.functions {
		f.behind = smallLine.ReplaceAllStringFunc(f.behind, func(line string) string {
			list := strings.Split(smallLine.FindStringSubmatch(line)[1], ", ")
			for i, name := range names {
				if list[i] != "nil" && !mentions(all, name, "") {
					list[i], any = "nil", true
				}
			}
			return "small(" + strings.Join(list, ", ") + ")"
		})
	}
	return any
}
