package limit

import (
	"encoding"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// String returns r in the text grammar, which [Parse] reads: "5/2s per ip". Its
// Cost is not part of it.
func (r Rule) String() string {
	text := strconv.FormatInt(r.Limit, 10) + "/"
	if r.Calendar.Unit != 0 {
		text += unitWord(r.Calendar.Unit)
	} else {
		text += formatWindow(r.Window)
	}
	if r.Name != "" {
		text = r.Name + ": " + text
	}
	if r.Key.kind != everyone {
		text += " per"
	}
	return text + " " + r.Key.String() + r.attributes()
}

// String returns s in the text grammar: "5/2s per ip; 1000/1m global". The
// name given by [Named] is not part of it.
func (s RuleSet) String() string {
	texts := make([]string, len(s.rules))
	for i, r := range s.rules {
		texts[i] = r.String()
	}
	return strings.Join(texts, "; ")
}

var (
	_ encoding.TextMarshaler   = RuleSet{}
	_ encoding.TextUnmarshaler = (*RuleSet)(nil)
)

// MarshalText implements [encoding.TextMarshaler], for JSON, YAML and flags.
// It returns an error for what [Parse] would not read: an invalid set, a
// resolver made by [By], a Cost, and a time zone that has no name.
func (s RuleSet) MarshalText() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	for _, r := range s.rules {
		if problem := r.noText(); problem != "" {
			return nil, &RuleError{Rule: r.String(), Problem: problem}
		}
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. See [Parse].
func (s *RuleSet) UnmarshalText(text []byte) error {
	set, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = set
	return nil
}

// A ParseError says where a text is not in the text grammar.
type ParseError struct {
	Text   string // all of it
	Offset int    // in bytes, of what was found
	Found  string // a word of the text, or "" at its end
	Want   string // what to write there
}

// Error names line and column (from 1, in characters) and, under the message,
// shows the line with a mark.
func (e *ParseError) Error() string {
	start := strings.LastIndexByte(e.Text[:e.Offset], '\n') + 1
	before := e.Text[start:e.Offset]
	after, _, _ := strings.Cut(e.Text[e.Offset:], "\n")
	where := fmt.Sprintf("column %d", utf8.RuneCountInString(before)+1)
	if strings.Contains(strings.TrimSpace(e.Text), "\n") {
		where = fmt.Sprintf("line %d, %s", strings.Count(e.Text[:start], "\n")+1, where)
	}
	found := strconv.Quote(excerpt(e.Found))
	switch e.Found {
	case "":
		found = "the end"
	case "\n":
		found = "the end of the line"
	}
	if len(before) > maxExcerpt {
		before = "…" + strings.ToValidUTF8(before[len(before)-maxExcerpt:], "")
	}
	before, after = printable(before), printable(excerpt(after))
	return fmt.Sprintf("limit: %s of %q: found %s, want %s\n\t%s\n\t%s^",
		where, before+after, found, e.Want, before+after, strings.Repeat(" ", utf8.RuneCountInString(before)))
}

const maxExcerpt = 60

// excerpt returns the beginning of a text that may be a megabyte.
func excerpt(s string) string {
	if len(s) <= maxExcerpt {
		return s
	}
	return strings.ToValidUTF8(s[:maxExcerpt], "") + "…"
}

// printable returns s with as many characters, none of which moves the mark
// below it or means anything to a terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}
