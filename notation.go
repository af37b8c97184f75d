package limit

import (
	"encoding"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// String returns r in the text grammar, which [Parse] reads: "5/2s per ip".
func (r Rule) String() string {
	text := strconv.FormatInt(r.Limit, 10) + "/" + formatWindow(r.Window)
	if r.Name != "" {
		text = r.Name + ": " + text
	}
	if r.Key.kind == everyone {
		return text + " " + r.Key.String()
	}
	return text + " per " + r.Key.String()
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
// It returns an error for what [Parse] would not read: an invalid set, and a
// resolver made by [By].
func (s RuleSet) MarshalText() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	for _, r := range s.rules {
		if r.Key.uses(byFunc) {
			return nil, &RuleError{Rule: r.String(), Problem: "a function has no text: write a resolver other than limit.By"}
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

// A unit is a word for a length of time.
type unit struct {
	word string
	time.Duration
}

const day = 24 * time.Hour

// units begins with the words that formatWindow uses, largest first.
var units = []unit{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"µs", time.Microsecond}, {"ns", time.Nanosecond},
	{"us", time.Microsecond}, {"μs", time.Microsecond}, // the two other ways to write µs
	{"day", day}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second},
}

// formatWindow returns a window in the text grammar: "2s", "1h30m", "1d". It
// is part of the names of rules, and so of the keys of their state.
func formatWindow(d time.Duration) string {
	if d <= 0 {
		return d.String()
	}
	var b strings.Builder
	for _, u := range units {
		if n := d / u.Duration; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteString(u.word)
			d -= n * u.Duration
		}
	}
	return b.String()
}

// times returns the length of time that a number of units is. It is exact, or
// not ok: out of range, no number, or with more digits than nanoseconds.
func (u unit) times(number string) (d time.Duration, ok bool) {
	whole, fraction, _ := strings.Cut(number, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > int64(math.MaxInt64/u.Duration) {
		return 0, false
	}
	d = time.Duration(n) * u.Duration
	for place := u.Duration; fraction != ""; fraction = fraction[1:] {
		if fraction[0] < '0' || fraction[0] > '9' || place%10 != 0 {
			return 0, false
		}
		place /= 10
		d += time.Duration(fraction[0]-'0') * place
	}
	return d, d >= 0
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
