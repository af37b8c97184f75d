// Package fields writes the structured fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers-11: a member for each rule whose units clients spend.
package fields

import (
	"math"
	"strconv"
	"time"

	"github.com/routelimit/limit/core"
)

// Policy returns the member of a rule in RateLimit-Policy: name, quota and window, by the limit of
// a caller. The quota is what a window admits in the long run, so that q and w are a rate; a burst
// shows in the r of RateLimit. The window is left out if it is no whole number of seconds, or a
// calendar period, since those differ. Concurrency has no window, and a unit of its own. Names need
// no escapes.
func Policy(name string, q *core.Quota, limit int64) string {
	if !q.Spends() {
		return ""
	}
	member := `"` + name + `";q=` + strconv.FormatInt(limit, 10)
	switch {
	case q.Leases():
		member += `;qu="concurrent-requests"`
	case q.Window%1e6 == 0 && q.Calendar.Unit == 0:
		member += ";w=" + strconv.FormatInt(q.Window/1e6, 10)
	}
	return member
}

// separator is between two members of a list.
const separator = ", "

// State returns the beginning of a rule's member in RateLimit, for Append.
func State(name string, q *core.Quota) string {
	if !q.Spends() {
		return ""
	}
	return separator + `"` + name + `";r=`
}

// Append appends a member of RateLimit to b, which has the members before: its beginning, the units
// that are left and, unless none come, the seconds until there are more.
func Append(b []byte, state string, left, more int64) []byte {
	if len(b) == 0 {
		state = state[len(separator):]
	}
	b = appendInt(append(b, state...), left)
	if more > 0 {
		b = append(b, ";t="...)
		b = appendInt(b, Seconds(core.Duration(more)))
	}
	return b
}

// appendInt appends n, which is not negative. [strconv.AppendInt] writes it elsewhere first, and
// then waits until it can read that.
func appendInt(b []byte, n int64) []byte {
	if n < 10 {
		return append(b, byte('0'+n))
	}
	if n >= 100 {
		b = appendInt(b, n/100)
	}
	return append(b, byte('0'+n/10%10), byte('0'+n%10))
}

// Join joins two lists of members, either of which may be empty.
func Join(list, more string) string {
	if list == "" || more == "" {
		return list + more
	}
	return list + separator + more
}

// Seconds rounds up, so that a client that waits as long is not too early.
func Seconds(d time.Duration) int64 { return In(d, time.Second) }

// In returns d in a unit, rounded up.
func In(d, unit time.Duration) int64 {
	whole := d / unit
	if d%unit > 0 {
		whole++
	}
	return int64(whole)
}

// Span returns d as 6m0s, rounded up to milliseconds.
func Span(d time.Duration) string {
	d = min(d, math.MaxInt64-time.Millisecond) // so that rounding up cannot overflow
	return (time.Duration(In(d, time.Millisecond)) * time.Millisecond).String()
}

// Time returns t as in RFC 3339, rounded up to seconds.
func Time(t time.Time) string {
	return t.Add(time.Second - 1).Truncate(time.Second).UTC().Format(time.RFC3339)
}
