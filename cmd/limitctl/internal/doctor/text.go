package doctor

import (
	"fmt"
	"strconv"
	"time"
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
