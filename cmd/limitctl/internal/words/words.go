// Package words writes numbers, times and foreign texts for a terminal: whatever a text
// has, it moves no cursor and imitates no other text.
package words

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns a text that moves no cursor, changes no color and turns no text
// around: all that is not printable is written as an escape such as \x1b.
func Printable(s string) string {
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

// Cut returns a printable text of at most n characters.
func Cut(s string, n int) string {
	if len(s) > 8*n { // whatever the characters are
		s = s[:8*n]
	}
	s = Printable(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Quote returns a text in quotes and printable ASCII, cut to 120 bytes: it cannot imitate
// other text.
func Quote(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.QuoteToASCII(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.QuoteToASCII(s[:most]), len(s))
}

// Plain reports whether a text has nothing but letters and digits of ASCII, and the marks.
func Plain(s, marks string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"+marks) == ""
}

// Number writes 1234567 as 1,234,567.
func Number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Count writes a number of things: "1 key", "1,000 keys".
func Count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Number(n) + " " + what + "s"
}

// Duration writes a span of time in two units at most.
func Duration(d time.Duration) string {
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

// Size writes a number of bytes.
func Size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1000, 0
	for size >= 999.95 && unit < len(units)-1 {
		size, unit = size/1000, unit+1
	}
	return fmt.Sprintf("%.1f %cB", size, units[unit])
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

// Percent writes a part of a whole. Only nothing is 0 %, and only all is 100 %.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case part == 0:
		return "0%"
	case part == whole:
		return "100%"
	case p < 0.1:
		return "<0.1%"
	case p > 99.9:
		return ">99.9%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// WriteJSON writes a value as JSON, indented or as a line. Characters that a terminal would
// obey are written as escapes, which decode to the same texts.
func WriteJSON(w io.Writer, value any, indented bool) error {
	var text, b strings.Builder
	encoder := json.NewEncoder(&text)
	if indented {
		encoder.SetIndent("", "  ")
	}
	if err := encoder.Encode(value); err != nil {
		return err
	}
	for _, c := range text.String() {
		switch {
		case c == '\n' || unicode.IsPrint(c):
			b.WriteRune(c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
