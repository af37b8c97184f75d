//go:build unix

package main

import (
	"fmt"
	"strings"
)

// A Mutant is one change to one file.
type Mutant struct {
	File     string // relative to the module, with slashes
	Line     int
	Func     string // the function around it: "take", "(*store).Take"; empty outside of one
	Operator string
	From, To string // the text that it replaces, and the new text

	offset int
}

// The operators. Both languages have all but the last two.
const (
	Boundary   = "boundary"   // < for <=, == for !=
	Negate     = "negate"     // a condition
	Logic      = "logic"      // && for ||
	Arithmetic = "arithmetic" // + for -, * for /
	Constant   = "constant"   // n+1 for n
	Remove     = "remove"     // a statement
	Zero       = "zero"       // what a function returns
)

// swaps are the tokens that an operator replaces by another one.
var swaps = map[string]struct{ operator, to string }{
	"<": {Boundary, "<="}, "<=": {Boundary, "<"}, ">": {Boundary, ">="}, ">=": {Boundary, ">"},
	"==": {Boundary, "!="}, "!=": {Boundary, "=="}, "~=": {Boundary, "=="},
	"+": {Arithmetic, "-"}, "-": {Arithmetic, "+"}, "*": {Arithmetic, "/"}, "/": {Arithmetic, "*"},
	"+=": {Arithmetic, "-="}, "-=": {Arithmetic, "+="}, "*=": {Arithmetic, "/="}, "/=": {Arithmetic, "*="},
	"%": {Arithmetic, "+"}, "++": {Arithmetic, "--"}, "--": {Arithmetic, "++"},
	"&&": {Logic, "||"}, "||": {Logic, "&&"}, "and": {Logic, "or"}, "or": {Logic, "and"},
}

// Apply returns the mutated text of its file.
func (m Mutant) Apply(text string) string {
	return text[:m.offset] + m.To + text[m.offset+len(m.From):]
}

// String describes the mutant in one line.
func (m Mutant) String() string {
	to := short(m.To)
	if m.Operator == Remove {
		to = "nothing"
	}
	return fmt.Sprintf("%s:%d %s: %s: %s for %s", m.File, m.Line, m.Func, m.Operator, to, short(m.From))
}

// short returns the text in one line of at most 60 bytes.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 60 {
		text = text[:57] + "..."
	}
	return "`" + text + "`"
}
