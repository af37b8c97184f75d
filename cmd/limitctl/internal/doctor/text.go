package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// quote returns foreign text in quotes and printable ASCII, so that it cannot control
// a terminal or imitate other text. Long text is cut.
func quote(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.QuoteToASCII(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.QuoteToASCII(s[:most]), len(s))
}

// clean escapes what could control a terminal or be invisible: control characters,
// marks of text direction and bytes that are not UTF-8.
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

// size formats a number of bytes.
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

// span formats a duration.
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
