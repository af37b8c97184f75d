// Package excerpt shows parts of texts that come from elsewhere in errors: short, and
// without characters that would control a terminal.
package excerpt

import (
	"strings"
	"unicode"
)

// Max is how many bytes of a text an error shows.
const Max = 60

// Start returns the beginning of a text.
func Start(s string) string {
	if len(s) <= Max {
		return s
	}
	return strings.ToValidUTF8(s[:Max], "") + "…"
}

// End returns the end of a text.
func End(s string) string {
	if len(s) <= Max {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-Max:], "")
}

// Printable replaces the characters of s that would move a caret below it or control a
// terminal.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}
