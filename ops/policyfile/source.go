package policyfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
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

// offset returns the byte of a line and a column, or of the end of the line. Columns count
// characters. The YAML library may know more lines, since it also breaks them at U+2028.
func (s *source) offset(line, column int) int {
	at := s.starts[min(line, len(s.starts))-1]
	text, _, _ := strings.Cut(s.text[at:], "\n")
	for rest := strings.TrimSuffix(text, "\r"); column > 1 && rest != ""; column-- {
		_, size := utf8.DecodeRuneInString(rest)
		at, rest = at+size, rest[size:]
	}
	return at
}

// start returns the byte at which a value begins.
func (s *source) start(n *yaml.Node) int { return s.offset(n.Line, n.Column) }

// pieces match, by the quotes around a text, what stands for a word, for blanks, or for
// another character of it. Blanks are one piece, since lines are folded and indented.
var pieces = map[yaml.Style]*regexp.Regexp{
	yaml.DoubleQuotedStyle: regexp.MustCompile(`^(?:[^\s\\"]+|(?:\s|\\[\snrt])+|\\(?:x..|u....|U........|.))`),
	yaml.SingleQuotedStyle: regexp.MustCompile(`^(?:[^\s']+|\s+|'')`),
	0:                      regexp.MustCompile(`^(?:\S+|\s+)`),
}

// inside returns the byte of the source that is byte i of a text.
func (s *source) inside(n *yaml.Node, i int) int {
	i = min(i, len(n.Value))
	quotes := n.Style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle)
	at, read := s.start(n), 0
	switch {
	case quotes != 0:
		at = min(at+1, len(s.text))
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		at = s.offset(n.Line+1, 1) // a block begins in the next line
		at += len(s.text[at:]) - len(strings.TrimLeft(s.text[at:], " \n"))
		read = len(n.Value) - len(strings.TrimLeft(n.Value, " \n"))
	}
	if strings.HasPrefix(s.text[at:], n.Value[read:max(read, i)]) {
		return at + max(0, i-read)
	}
	for read < i {
		piece, rest := pieces[quotes].FindString(s.text[at:]), n.Value[read:]
		blanks := len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
		switch {
		case piece == "":
			return at
		case blanks > 0 || strings.TrimSpace(piece) == "":
			read += blanks
		case piece[0] == '\\' && quotes == yaml.DoubleQuotedStyle, piece == "''" && quotes != 0:
			_, size := utf8.DecodeRuneInString(rest)
			read += size
		case read+len(piece) > i:
			return at + i - read
		default:
			read += len(piece)
		}
		at += len(piece)
	}
	return at
}

// error returns an error about a byte.
func (s *source) error(at int, problem string) *Error {
	mark := excerpt.At(s.text, at)
	return &Error{s.name, mark.Line, mark.Column, problem, mark}
}

// at returns the place of byte i of a text as messages name it.
func (s *source) at(n *yaml.Node, i int) string { return s.error(s.inside(n, i), "").place() }

// quoted returns a short text for a message.
func quoted(s string) string {
	return strconv.Quote(excerpt.Start(s))
}
