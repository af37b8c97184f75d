package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error is one mistake in a file.
type Error struct {
	File         string // its name
	Line, Column int    // from 1, in characters
	Problem      string // what is wrong, and what to write instead

	excerpt string // of the line
	caret   int    // characters of it before the mistake
}

// Error returns the place and the problem, and below them the line with a caret. It
// shows no secret of a header in a list.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s\n\t%s\n\t%s^", e.File, e.Line, e.Column, e.Problem, e.excerpt, strings.Repeat(" ", e.caret))
}

// A source is the text of a file. Places are offsets in bytes.
type source struct {
	name   string
	text   string
	starts []int // of the lines

	// The last answer of offset: files of one long line have all places there.
	lastLine, lastColumn, lastAt int
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
	shown := masked(line[begin:min(len(line), len(before)+maxExcerpt+utf8.UTFMax)])
	before, after := shown[:len(before)-begin], shown[len(before)-begin:]
	if n := len(before) - maxExcerpt; n > 0 {
		before = "…" + strings.ToValidUTF8(before[n:], "")
	}
	if len(after) > maxExcerpt {
		after = strings.ToValidUTF8(after[:maxExcerpt], "") + "…"
	}
	e.excerpt, e.caret = printable(before+after), utf8.RuneCountInString(before)
	return e
}

const (
	maxExcerpt = 60
	maxMasked  = 2000 // bytes before a place in which an entry with a secret may begin
)

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

// printable replaces the characters of s that would move the caret below it or control
// a terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}

// quoted returns a short text for a message.
func quoted(s string) string {
	if len(s) > maxExcerpt {
		s = strings.ToValidUTF8(s[:maxExcerpt], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
