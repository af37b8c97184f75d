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

	"github.com/routelimit/limit/internal/excerpt"
)

// An Error is one mistake in a file.
type Error struct {
	File         string // its name
	Line, Column int    // from 1, in characters
	Problem      string // what is wrong, and what to write instead

	mark excerpt.Mark
}

// Error returns the place and the problem, and below them the line with a caret. It
// shows no secret of a header in a list.
func (e *Error) Error() string {
	return e.place() + ": " + e.Problem + e.mark.String()
}

func (e *Error) place() string { return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column) }

// A source is the text of a file. Places are offsets in bytes.
type source struct {
	name   string
	text   string
	starts []int // of the lines

	// The last answer of offset: files of one long line have all places there.
	lastLine, lastColumn, lastAt int
}

// sum returns the first 12 hexadecimal digits of the SHA-256 of the text.
func (s *source) sum() string {
	sum := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(sum[:6])
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

// line returns the index and the text of the line of a place.
func (s *source) line(at int) (index int, text string) {
	index, found := slices.BinarySearch(s.starts, at)
	if !found {
		index--
	}
	end := len(s.text)
	if index+1 < len(s.starts) {
		end = s.starts[index+1] - 1
	}
	return index, strings.TrimSuffix(s.text[s.starts[index]:end], "\r")
}

// offset returns the place of a line and a column, which count from 1, in characters.
func (s *source) offset(line, column int) int {
	line = min(max(line, 1), len(s.starts))
	at, from := s.starts[line-1], 1
	if line == s.lastLine && column >= s.lastColumn {
		at, from = s.lastAt, s.lastColumn
	}
	for ; column > from && at < len(s.text) && s.text[at] != '\n'; from++ {
		_, size := utf8.DecodeRuneInString(s.text[at:])
		at += size
	}
	s.lastLine, s.lastColumn, s.lastAt = line, column, at
	return at
}

// error returns an error about a place.
func (s *source) error(at int, problem string) *Error {
	at = min(max(at, 0), len(s.text))
	index, line := s.line(at)
	before := line[:min(at-s.starts[index], len(line))]
	e := &Error{File: s.name, Line: index + 1, Column: utf8.RuneCountInString(before) + 1, Problem: problem}
	begin := max(0, len(before)-maxMasked)
	shown := masked(line[begin:min(len(line), len(before)+excerpt.Max+utf8.UTFMax)])
	e.mark = excerpt.In(shown[:len(before)-begin], shown[len(before)-begin:])
	return e
}

// maxMasked is how many bytes before a place an entry with a secret may begin.
const maxMasked = 2000

// secret matches a line from the secret of a header in a list to its end: the word
// header begins the text of an entry, and the rules of a policy have a word before it.
var secret = regexp.MustCompile(`(?i)(?:^|["'\[,:-])[\s\\"']*header[\\"']*\s+\S+\s+(\S.*)$`)

// masked returns a line of the same length without secrets, since errors are logged.
func masked(line string) string {
	found := secret.FindStringSubmatchIndex(line)
	if found == nil {
		return line
	}
	return line[:found[2]] + strings.Repeat("*", len(line)-found[2])
}

// quoted returns a short text for a message.
func quoted(s string) string {
	return strconv.Quote(excerpt.Start(s))
}
