package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/routelimit/limit/cmd/limitctl/internal/figures"
)

// Printable returns a text that moves no cursor, changes no color and turns no text
// around: all that is not printable is written as an escape such as \x1b.
func Printable(s string) string {
	harmless := true
	for _, c := range s {
		harmless = harmless && c != utf8.RuneError && unicode.IsPrint(c)
	}
	if harmless {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(c):
			b.WriteRune(c)
		default:
			quoted := strconv.QuoteRune(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// shorten returns a printable text of at most n characters.
func shorten(s string, n int) string {
	if len(s) > 8*n { // whatever the characters are
		s = s[:8*n]
	}
	s = Printable(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Short names, for templates too.
var number, percent = figures.Number, figures.Percent

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(n) + " " + what + "s"
}

// moment writes a time to the second, in UTC.
func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.DateTime)
}

// minute writes a time to the minute, in UTC.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// duration writes a span of time in two units at most.
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0s"
	case d < 10*time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute-50*time.Millisecond: // which is rounded to a minute
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	case d.Round(time.Second) < time.Hour:
		return units(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d.Round(time.Minute) < 2*day:
		return units(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return units(d.Round(time.Hour), day, "d", time.Hour, "h")
}

func units(d, large time.Duration, name string, small time.Duration, smallName string) string {
	text := strconv.FormatInt(int64(d/large), 10) + name
	if rest := d % large / small; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + smallName
	}
	return text
}

// Lines is Printable for a text of several lines. It keeps the tab before a line of an
// excerpt, which is never the first.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		indent := ""
		if text, indented := strings.CutPrefix(line, "\t"); indented && i > 0 {
			indent, line = "\t", text
		}
		lines[i] = indent + Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Duration writes a span of time as reports do.
func Duration(d time.Duration) string { return duration(d) }
