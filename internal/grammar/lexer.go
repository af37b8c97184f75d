package grammar

import (
	"fmt"
	"strings"
)

const (
	blanks     = " \t\r"
	delimiters = blanks + "\n;()"
)

// A lexer splits a text into tokens: words, the delimiters ";", "(", ")" and
// "\n", and "" at the end. The parser splits words such as "5/2s" further.
type lexer struct {
	text string
	at   int // the offset of the text that is not read yet
}

func (l *lexer) skip(bytes string) {
	l.at = len(l.text) - len(strings.TrimLeft(l.text[l.at:], bytes))
}

// peek goes to the next token and returns it without reading it.
func (l *lexer) peek() string {
	l.skip(blanks)
	if word := l.word(); word != "" || l.at == len(l.text) {
		return word
	}
	return l.text[l.at : l.at+1]
}

// word returns the rest of the word at the current offset, which is "" at a
// delimiter.
func (l *lexer) word() string {
	rest := l.text[l.at:]
	if i := strings.IndexAny(rest, delimiters); i >= 0 {
		return rest[:i]
	}
	return rest
}

// accept reads the next token if it is the given one.
func (l *lexer) accept(token string) bool {
	if l.peek() != token {
		return false
	}
	l.at += len(token)
	return true
}

// errorf returns an error about the next token, with the text to write there
// instead.
func (l *lexer) errorf(want string, args ...any) error {
	found := l.peek()
	return &ParseError{Text: l.text, Offset: l.at, Found: found, Want: fmt.Sprintf(want, args...)}
}

// unexpected is errorf for a place where a comma may stand by mistake.
func (l *lexer) unexpected(want string) error {
	before, after, found := strings.Cut(l.peek(), ",")
	if found && (leading(before, isDigit) == "" || leading(after, isDigit) == "") {
		want = `";" before another rule, or "and" or "or" before another key, instead of ","`
	}
	return l.errorf("%s", want)
}

// leading returns the beginning of s that consists of certain characters.
func leading(s string, certain func(rune) bool) string {
	return s[:len(s)-len(strings.TrimLeftFunc(s, certain))]
}

func isDigit(c rune) bool { return '0' <= c && c <= '9' }
