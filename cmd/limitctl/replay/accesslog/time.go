package accesslog

import (
	"strconv"
	"strings"
	"time"
)

const (
	second  = int64(1_000_000)         // in microseconds
	minTime = -62_167_219_200 * second // the year 0
	maxTime = 253_402_300_800 * second // the year 10000
)

// A time without a zone is UTC, such as that of HAProxy. [time.Parse] reads fractions of a
// second after a dot or a comma.
var (
	slashTimes = []string{"02/Jan/2006:15:04:05 -0700", "02/Jan/2006:15:04:05"}
	ginTimes   = []string{"2006/01/02 - 15:04:05"}
	isoTimes   = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700",
		"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05 -0700"}
)

// parseTime returns the microseconds since the epoch of a time in the form of RFC 3339, in
// that of the common log format, or as a number of seconds, milliseconds, microseconds or
// nanoseconds, by its size.
func parseTime(s string) (micros int64, ok bool) {
	var layouts []string
	switch {
	case len(s) < 19:
	case s[2] == '/':
		layouts = slashTimes
	case s[4] == '-':
		layouts = isoTimes
	case s[4] == '/':
		layouts = ginTimes
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			micros = t.UnixMicro()
			return micros, micros >= minTime && micros < maxTime
		}
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	switch {
	case err != nil || n < -1e11 || strings.Trim(fraction, "0123456789") != "":
		return 0, false
	case n < 1e11:
		micros, _ = strconv.ParseInt((fraction + "000000")[:6], 10, 64)
		n = n*second + micros
	case n < 1e14:
		n *= 1000
	case n >= 1e17:
		n /= 1000
	}
	return n, n >= minTime && n < maxTime
}
