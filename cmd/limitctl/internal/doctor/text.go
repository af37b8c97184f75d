package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// quote returns text of others in quotes and printable ASCII, so that it can do
// nothing to a terminal and looks like nothing else. Long ones are cut.
func quote(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.QuoteToASCII(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.QuoteToASCII(s[:most]), len(s))
}

// clean writes what a terminal might obey or that would not be seen, in text
// that servers have a part in, as an escape: controls, marks of direction, bytes
// that are no UTF-8.
func clean(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// size returns a number of bytes for people.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1000, 0
	for f >= 999.95 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}

// span returns a duration for people.
func span(d time.Duration) string {
	switch {
	case d >= time.Second || d <= -time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond || d <= -time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
