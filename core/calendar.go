package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A Calendar makes the windows of a [FixedWindow] the hours, days, weeks (from
// Monday) or months of a time zone, with its daylight saving: a day with a
// missing hour is an hour shorter. The zero Calendar is none.
type Calendar struct {
	Unit CalendarUnit
	Zone *time.Location // the same in all processes on a store, which time.Local may not be
}

// A CalendarUnit is a period of a [Calendar].
type CalendarUnit uint8

// The calendar units.
const (
	Hour CalendarUnit = iota + 1
	Day
	Week
	Month
)

// Usual returns the usual length of a period in microseconds: a day has 24 hours, and a month
// 30 days. It is 0 if u is no unit.
func (u CalendarUnit) Usual() int64 {
	const hour = 3600 * 1_000_000
	lengths := [...]int64{Hour: hour, Day: 24 * hour, Week: 7 * 24 * hour, Month: 30 * 24 * hour}
	if int(u) >= len(lengths) {
		return 0
	}
	return lengths[u]
}

func (c Calendar) validate() error {
	switch {
	case c.Unit == 0 && c.Zone == nil:
		return nil
	case c.Unit > Month || c.Unit == 0:
		return fmt.Errorf("calendar unit %d: write Hour, Day, Week or Month", c.Unit)
	case c.Zone == nil:
		return errors.New("calendar without a time zone: write one, such as time.UTC")
	}
	return nil
}

// Period returns the period that now is in: it begins at from and ends before until.
func (c Calendar) Period(now int64) (from, until int64) {
	t := time.UnixMicro(now).In(c.Zone)
	if c.Unit == Hour {
		return c.hour(t.Unix())
	}
	year, month, day := t.Date()
	var months, days int // in a period
	switch c.Unit {
	case Week:
		day, days = day-(int(t.Weekday())+6)%7, 7
	case Month:
		day, months = 1, 1
	default:
		days = 1
	}
	begin := func(n int) int64 { return c.midnight(year, month+time.Month(n*months), day+n*days) }
	n := 0
	// Where clocks are set back over midnight, they show a date that is over or
	// one that has not begun: see midnight.
	for begin(n) > now {
		n--
	}
	for {
		if from, until = begin(n), begin(n+1); now < until {
			return from, until
		}
		n++
	}
}

// hour returns the hour of a second, by the offset from UTC at that second. Where
// the offset changes within the hour, the hour ends or begins there.
func (c Calendar) hour(now int64) (from, until int64) {
	_, offset := time.Unix(now, 0).In(c.Zone).Zone()
	start := now - ((now+int64(offset))%3600+3600)%3600
	return c.change(now, start) * 1_000_000, (c.change(now, start+3599) + 1) * 1_000_000
}

// change returns the second farthest from a one, toward another within an hour, with the same
// offset from UTC. (The bounds of package time may lie in the past on the last day of a leap year.)
func (c Calendar) change(from, toward int64) int64 {
	_, offset := time.Unix(from, 0).In(c.Zone).Zone()
	same := func(at int64) bool {
		_, other := time.Unix(at, 0).In(c.Zone).Zone()
		return other == offset
	}
	if same(toward) {
		return toward
	}
	for from-toward > 1 || toward-from > 1 {
		if middle := (from + toward) / 2; same(middle) {
			from = middle
		} else {
			toward = middle
		}
	}
	return from
}

// midnight returns when a date begins: at its midnight, or at the first moment after it that the
// zone does not skip. Dates in order have moments in order. Where clocks are set back over
// midnight, the date begins with the second one if what is shown of it before is shorter than what
// is shown of the day before again.
func (c Calendar) midnight(year int, month time.Month, day int) int64 {
	local := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	const most = 26 * 3600 // no zone is further ahead
	t := time.Unix(local-most, 0).In(c.Zone)
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		first := max(local-int64(offset), t.Unix())
		if !end.After(t) {
			return first * 1_000_000
		}
		if first < end.Unix() {
			_, next := end.Zone()
			shown, again := end.Unix()-first, local-end.Unix()-int64(next)
			if shown >= again {
				return first * 1_000_000
			}
		}
		t = end
	}
}

// A windowMark is what [Quota.WindowMark] returns.
type windowMark [6]byte

// The last two bits of a mark, as a big-endian number. Behind them is the length, or for a
// calendar the unit in two bits, and a hash of the name of the zone.
const (
	ownWindows = iota // windows begin with a key's first unit
	alignedWindows
	calendarPeriods
)

// WindowMark says how the windows of a valid [FixedWindow] cut time, in 6 bytes that stores
// keep: by their length, or by the unit and the name of the zone of a calendar.
func (q *Quota) WindowMark() (m [6]byte) {
	n := uint64(q.Window) << 2
	switch {
	case q.Calendar.Unit != 0:
		n = uint64(q.Calendar.Unit-Hour)<<2 | calendarPeriods
		hash := uint64(14695981039346656037) // FNV-1a
		for _, c := range []byte(q.Calendar.Zone.String()) {
			hash = (hash ^ uint64(c)) * 1099511628211
		}
		n |= hash >> 20 << 4
	case q.Aligned:
		n |= alignedWindows
	}
	binary.BigEndian.PutUint16(m[:], uint16(n>>32))
	binary.BigEndian.PutUint32(m[2:], uint32(n))
	return m
}

func (m windowMark) kind() byte { return m[5] & 3 }

// longest returns how long a window may be. Days in which clocks are set back are longer.
func (m windowMark) longest() int64 {
	n := int64(binary.BigEndian.Uint16(m[:]))<<32 | int64(binary.BigEndian.Uint32(m[2:]))
	if m.kind() == calendarPeriods {
		const hour = 3600 * 1_000_000
		return [...]int64{hour, 26 * hour, 170 * hour, 746 * hour}[n>>2&3]
	}
	return n >> 2
}

// period returns the window of q that now is in: one that begins now unless the quota says when.
func (q *Quota) period(now int64) (from, until int64) {
	switch {
	case q.Calendar.Unit != 0:
		return q.Calendar.Period(now)
	case q.Aligned:
		from = now - now%q.Window
		return from, from + q.Window
	}
	return now, now + q.Window
}
