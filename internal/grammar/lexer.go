package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/internal/excerpt"
)

const (
	blanks     = " \t\r"
	delimiters = blanks + "\n;()"
)

// A Reader reads a text once, from left to right, as tokens: words, the delimiters ";",
// "(", ")" and "\n", and "" at the end. Each method reads one part of the grammar, and
// leaves At after it. Words such as "5/2s" have parts of their own.
type Reader struct {
	Text string
	At   int // the offset of the text that is not read yet

	Functions []string // the names of functions that keys may have
	any       bool     // whether they may have any
}

// An Error says where a text departs from the grammar.
type Error struct {
	Offset int    // of Found, in bytes
	Found  string // the word that does not fit, or "" at the end of the text
	Want   string // what to write instead
}

func (e *Error) Error() string {
	found := strconv.Quote(excerpt.Start(e.Found))
	switch e.Found {
	case "":
		found = "the end"
	case "\n":
		found = "the end of the line"
	}
	return "found " + found + ", want " + e.Want
}

// skip goes to the next byte that is none of some.
func (r *Reader) skip(bytes string) {
	r.At = len(r.Text) - len(strings.TrimLeft(r.Text[r.At:], bytes))
}

// Blank goes over blanks and empty lines, and reports whether the text ends there.
func (r *Reader) Blank() bool {
	r.skip(blanks + "\n")
	return r.At == len(r.Text)
}

// Peek goes to the next token and returns it without reading it.
func (r *Reader) Peek() string {
	r.skip(blanks)
	if word := r.rest(); word != "" || r.At == len(r.Text) {
		return word
	}
	return r.Text[r.At : r.At+1]
}

// rest returns the rest of the word at the current offset, which is "" at a delimiter.
func (r *Reader) rest() string {
	rest := r.Text[r.At:]
	if i := strings.IndexAny(rest, delimiters); i >= 0 {
		return rest[:i]
	}
	return rest
}

// Next reads the next token.
func (r *Reader) Next() string {
	token := r.Peek()
	r.At += len(token)
	return token
}

// Accept reads the next token if it is one of the given ones.
func (r *Reader) Accept(tokens ...string) bool {
	if !slices.Contains(tokens, r.Peek()) {
		return false
	}
	r.Next()
	return true
}

// Word reads a word of any text.
func (r *Reader) Word(want string) (string, error) {
	r.skip(blanks)
	word := r.rest()
	if word == "" {
		return "", r.Errorf("%s", want)
	}
	r.At += len(word)
	return word, nil
}

// Name reads a name.
func (r *Reader) Name(want string) (string, error) {
	if !ValidName(r.Peek()) {
		return "", r.Errorf("%s", want)
	}
	return r.Next(), nil
}

// Quoted reads a text in quotes, with a backslash before a quote or another backslash.
func (r *Reader) Quoted(want string) (string, error) {
	r.skip(blanks)
	if !strings.HasPrefix(r.Text[r.At:], `"`) {
		return "", r.Errorf("%s", want)
	}
	var b strings.Builder
	for at := r.At + 1; at < len(r.Text) && r.Text[at] != '\n'; at++ {
		switch c := r.Text[at]; {
		case c == '"':
			r.At = at + 1
			return b.String(), nil
		case c == '\\' && at+1 < len(r.Text) && (r.Text[at+1] == '"' || r.Text[at+1] == '\\'):
			at++
		}
		b.WriteByte(r.Text[at])
	}
	return "", r.Errorf("a quote at the end of the text in quotes, in the same line")
}

// Quote returns a text as Quoted reads it.
func Quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// EndOfRule reads the ";" or line break after a rule, which the last one need not have.
// want says what else may stand there instead of a word.
func (r *Reader) EndOfRule(want func(found string) string) error {
	switch word := r.Peek(); word {
	case "":
	case ";", "\n":
		r.At++
	default:
		return r.Unexpected(want(word))
	}
	return nil
}

// SkipRule goes behind the rest of a rule that cannot be read.
func (r *Reader) SkipRule() {
	i := strings.IndexAny(r.Text[r.At:], ";\n")
	if i < 0 {
		i = len(r.Text) - r.At - 1
	}
	r.At += i + 1
}

// Errorf returns an [*Error] about the next token: what to write there instead.
func (r *Reader) Errorf(want string, args ...any) error {
	found := r.Peek()
	return &Error{Offset: r.At, Found: found, Want: fmt.Sprintf(want, args...)}
}

// Unexpected is Errorf for a place where a comma may stand by mistake.
func (r *Reader) Unexpected(want string) error {
	before, after, found := strings.Cut(r.Peek(), ",")
	if found && (leading(before, isDigit) == "" || leading(after, isDigit) == "") {
		want = `";" before another rule, or "and" or "or" between two keys, instead of ","`
	}
	return r.Errorf("%s", want)
}

// leading returns the beginning of s that consists of certain characters.
func leading(s string, certain func(rune) bool) string {
	return s[:len(s)-len(strings.TrimLeftFunc(s, certain))]
}

func isDigit(c rune) bool { return '0' <= c && c <= '9' }

// OneOf returns "a", "a or b" or "a, b or c".
func OneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
