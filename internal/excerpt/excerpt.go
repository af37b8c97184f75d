// Package excerpt shows parts of texts that come from elsewhere in errors: short, and
// without characters that would control a terminal.
package excerpt

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Mark is a place in a text, as errors show it.
type Mark struct {
	Line, Column int // from 1, in characters

	shown string // of the line
	caret int    // characters of it before the place
}

// At returns the mark of a byte of a text.
func At(text string, offset int) Mark {
	start := strings.LastIndexByte(text[:offset], '\n') + 1
	after, _, _ := strings.Cut(text[offset:], "\n")
	m := In(text[start:offset], strings.TrimSuffix(after, "\r"))
	m.Line = strings.Count(text[:start], "\n") + 1
	return m
}

// In returns the mark of a place in a line with some text before and after it.
func In(before, after string) Mark {
	column := utf8.RuneCountInString(before) + 1
	before, after = Printable(End(before)), Printable(Start(after))
	return Mark{Line: 1, Column: column, shown: before + after, caret: utf8.RuneCountInString(before)}
}

// Shown returns the line of the place, shortened.
func (m Mark) Shown() string { return m.shown }

// String returns the line of the place, and below it a caret, each behind a line break
// and a tab.
func (m Mark) String() string { return "\n\t" + m.shown + "\n\t" + strings.Repeat(" ", m.caret) + "^" }

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

// Some lists names, and says how many it leaves out of a long list.
func Some(names []string) string {
	const most = 20
	names = slices.Compact(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
