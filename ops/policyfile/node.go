package policyfile

import (
	"strings"
	"unicode/utf8"
)

// A node is a value of a file, whatever its format.
type node struct {
	kind  kind
	at    int    // its place
	text  string // of a scalar
	style style  // of a text

	items  []*node // of a list
	fields []field // of a mapping, as they stand
}

// A field is a part of a mapping.
type field struct {
	name  string
	at    int // the place of the name
	value *node
}

type kind uint8

const (
	nothing kind = iota
	boolean
	integer
	scalar // of another kind
	text
	list
	mapping
)

var kinds = [...]string{nothing: "nothing", boolean: "true or false", integer: "a number", scalar: "a value of another kind",
	text: "a text", list: "a list", mapping: "a mapping"}

// A style is how a text is written.
type style struct {
	open    int  // bytes before the text
	escapes byte // '\\' or '\'', or 0
	block   bool // of YAML: the text begins in the next line
}

// inside returns the place of byte i of a text.
func (s *source) inside(n *node, i int) int {
	src, at, indent := s.text, n.at+n.style.open, 0
	if n.style.block {
		for at < len(src) && src[at] != '\n' {
			at++
		}
		at++
		rest := src[min(at, len(src)):]
		indent = len(rest) - len(strings.TrimLeft(rest, " \r\n"))
		if cut := strings.LastIndexByte(rest[:indent], '\n'); cut >= 0 {
			at, indent = at+cut+1, indent-cut-1
		}
		at += indent
	}
	for j := 0; at < len(src); {
		c, size := utf8.DecodeRuneInString(n.text[j:])
		if j == len(n.text) {
			c = 0
		}
		found, sourceSize := utf8.DecodeRuneInString(src[at:])
		switch space := blank(src[at]); {
		case n.style.escapes == '\\' && src[at] == '\\' && c != 0:
			width := escape(src[at:], c)
			if width == 0 { // the end of a line that goes on
				at = afterBlanks(src, at+1)
				continue
			}
			if j >= i {
				return at
			}
			at += width
		case n.style.escapes == '\'' && strings.HasPrefix(src[at:], "''") && c == '\'':
			if j >= i {
				return at
			}
			at += 2
		case found == c && c != 0:
			if j >= i {
				return at
			}
			at += sourceSize
			for k := 0; c == '\n' && k < indent && at < len(src) && src[at] == ' '; k++ {
				at++
			}
		case space && (c == ' ' || c == '\n'): // lines that are folded
			if j >= i {
				return at
			}
			at = afterBlanks(src, at)
		case space && c != 0:
			at = afterBlanks(src, at)
			continue
		case j >= i:
			return at
		default: // not as expected: the beginning is near enough
			return n.at
		}
		if j += size; j > i {
			return at
		}
	}
	return len(src)
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func afterBlanks(s string, at int) int {
	for at < len(s) && blank(s[at]) {
		at++
	}
	return at
}

// escape returns the length of an escape at the beginning of a text that stands for c,
// or 0 if it ends a line.
func escape(s string, c rune) int {
	if len(s) < 2 {
		return 1
	}
	switch s[1] {
	case ' ', '\t', '\r', '\n':
		if strings.Contains(s[:afterBlanks(s, 1)], "\n") {
			return 0
		}
	case 'x':
		return 4
	case 'u':
		if c > 0xffff && strings.HasPrefix(s[min(6, len(s)):], `\u`) {
			return 12
		}
		return 6
	case 'U':
		return 10
	}
	return 2
}
