package policyfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/routelimit/limit/internal/excerpt"
)

// An Error is one mistake in a file.
type Error struct {
	File         string // its name
	Line, Column int    // from 1, in characters
	Problem      string // what is wrong, and what to write instead

	mark excerpt.Mark
}

// Error returns the place and the problem, and below them the line with a caret.
func (e *Error) Error() string {
	return e.place() + ": " + e.Problem + e.mark.String()
}

func (e *Error) place() string { return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column) }

// A source is the text of a file.
type source struct {
	name   string
	text   string
	starts []int // offsets of the lines
}

// A place is a line and a column in a source. Both count from 1, and columns count
// characters, as in the YAML library.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

func newSource(name, text string) *source {
	s := &source{name: name, text: text, starts: []int{0}}
	for i := range len(text) {
		if text[i] == '\n' {
			s.starts = append(s.starts, i+1)
		}
	}
	return s
}

// sum returns the first 12 hexadecimal digits of the SHA-256 of the text.
func (s *source) sum() string {
	sum := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(sum[:6])
}

// line returns the text of a line.
func (s *source) line(line int) string {
	text, _, _ := strings.Cut(s.text[s.starts[line-1]:], "\n")
	return strings.TrimSuffix(text, "\r")
}

// offset returns the byte of a place, or of the end of its line. The YAML library may know
// more lines, since it also breaks them at U+2028.
func (s *source) offset(at place) int {
	at.line = min(at.line, len(s.starts))
	rest := s.line(at.line)
	begin := len(rest)
	for ; at.column > 1 && rest != ""; at.column-- {
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	return s.starts[at.line-1] + begin - len(rest)
}

// place returns the place of a byte.
func (s *source) place(offset int) place {
	line, _ := slices.BinarySearch(s.starts, offset+1)
	return place{line, utf8.RuneCountInString(s.text[s.starts[line-1]:offset]) + 1}
}

// pieces match, by the quotes around a text, what stands for a word, for blanks, or for
// another character of it. Blanks are one piece, since lines are folded and indented.
var pieces = map[yaml.Style]*regexp.Regexp{
	yaml.DoubleQuotedStyle: regexp.MustCompile(`^(?:[^\s\\"]+|(?:\s|\\[\snrt])+|\\(?:x..|u....|U........|.))`),
	yaml.SingleQuotedStyle: regexp.MustCompile(`^(?:[^\s']+|\s+|'')`),
	0:                      regexp.MustCompile(`^(?:\S+|\s+)`),
}

// inside returns the place of byte i of a text.
func (s *source) inside(n *yaml.Node, i int) place {
	i = min(i, len(n.Value))
	quotes := n.Style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle)
	at, read := s.offset(placeOf(n)), 0
	switch {
	case quotes != 0:
		at = min(at+1, len(s.text))
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		at = s.starts[min(n.Line, len(s.starts)-1)] // a block begins in the next line
		at += len(s.text[at:]) - len(strings.TrimLeft(s.text[at:], " \n"))
		read = len(n.Value) - len(strings.TrimLeft(n.Value, " \n"))
	}
	if strings.HasPrefix(s.text[at:], n.Value[read:max(read, i)]) {
		return s.place(at + max(0, i-read))
	}
	for read < i {
		piece, rest := pieces[quotes].FindString(s.text[at:]), n.Value[read:]
		blanks := len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
		switch {
		case piece == "":
			return s.place(at)
		case blanks > 0 || strings.TrimSpace(piece) == "":
			read += blanks
		case piece[0] == '\\' && quotes == yaml.DoubleQuotedStyle, piece == "''" && quotes != 0:
			_, size := utf8.DecodeRuneInString(rest)
			read += size
		case read+len(piece) > i:
			return s.place(at + i - read)
		default:
			read += len(piece)
		}
		at += len(piece)
	}
	return s.place(at)
}

// error returns an error about a place.
func (s *source) error(at place, problem string) *Error {
	at.line = min(max(at.line, 1), len(s.starts))
	at.column = max(at.column, 1)
	line := s.line(at.line)
	before := line[:s.offset(at)-s.starts[at.line-1]]
	e := &Error{File: s.name, Line: at.line, Column: utf8.RuneCountInString(before) + 1, Problem: problem}
	e.mark = excerpt.In(before, line[len(before):])
	return e
}

// at returns the place of byte i of a text as messages name it.
func (s *source) at(n *yaml.Node, i int) string { return s.error(s.inside(n, i), "").place() }

// quoted returns a short text for a message.
func quoted(s string) string {
	return strconv.Quote(excerpt.Start(s))
}
