package core

import (
	"errors"
	"fmt"
	"time"
)

// A Calendar makes the windows of a [FixedWindow] the hours, days, weeks (from
// Monday) or months of a time zone, with its daylight saving: the day on which
// an hour is missing is an hour shorter. The zero Calendar is none.
type Calendar struct {
	Unit CalendarUnit
	Zone *time.Location
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

// Period returns the period that now is in: from it on, and before until.
func (c Calendar) Period(now int64) (from, until int64) {
	t := time.UnixMicro(now).In(c.Zone)
	year, month, day := t.Date()
	switch c.Unit {
	case Hour:
		// By the offset of now. Where the offset changes within the hour, so
		// does the hour.
		_, offset := t.Zone()
		now := t.Unix()
		start := now - ((now+int64(offset))%3600+3600)%3600
		return c.change(now, start) * 1_000_000, (c.change(now, start+3599) + 1) * 1_000_000
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
	case Month:
		day = 1
	}
	from = c.midnight(year, month, day)
	for {
		switch c.Unit {
		case Day:
			day++
		case Week:
			day += 7
		case Month:
			month++
		}
		// A clock that is set back over midnight shows the end of a date that
		// is over: it is of the next period.
		if until = c.midnight(year, month, day); now < until {
			return from, until
		}
		from = until
	}
}

// change returns the second farthest from a one, toward another within an hour,
// that still has its offset from UTC. (The bounds that package time knows may
// lie in the past on the last day of a leap year.)
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

// midnight returns the first moment of a date, or after it if the zone skips
// all of it. Dates in order have moments in order, whatever the clocks do.
func (c Calendar) midnight(year int, month time.Month, day int) int64 {
	local := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	const most = 26 * 3600 // no zone is further ahead
	t := time.Unix(local-most, 0).In(c.Zone)
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		first := max(local-int64(offset), t.Unix())
		if !end.After(t) || first < end.Unix() {
			return first * 1_000_000
		}
		t = end
	}
}

// anchored reports whether the windows of q begin with a key's first unit.
func (q *Quota) anchored() bool { return !q.Aligned && q.Calendar.Unit == 0 }

// period returns the window of q that now is in: one that begins now if it is
// anchored.
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
