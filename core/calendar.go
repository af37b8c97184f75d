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
		into := time.Duration((t.Unix()+int64(offset))%3600+3600) % 3600 * time.Second
		start := t.Truncate(time.Second).Add(-into)
		end := start.Add(time.Hour)
		zoneStart, zoneEnd := t.ZoneBounds()
		if !zoneStart.IsZero() && zoneStart.After(start) {
			start = zoneStart
		}
		if !zoneEnd.IsZero() && zoneEnd.Before(end) {
			end = zoneEnd
		}
		return start.UnixMicro(), end.UnixMicro()
	case Day:
		return c.midnight(year, month, day), c.midnight(year, month, day+1)
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
		return c.midnight(year, month, day), c.midnight(year, month, day+7)
	}
	return c.midnight(year, month, 1), c.midnight(year, month+1, 1)
}

// midnight returns the first moment of a date.
func (c Calendar) midnight(year int, month time.Month, day int) int64 {
	noon := time.Date(year, month, day, 12, 0, 0, 0, c.Zone)
	year, month, day = noon.Date() // as a date that exists
	t := time.Date(year, month, day, 0, 0, 0, 0, c.Zone)
	// Where midnight is missing, t may be of the day before, or later than need be.
	for _, transition := range []time.Time{boundAfter(t), boundBefore(t)} {
		if !transition.IsZero() && sameDate(transition, year, month, day) &&
			!sameDate(transition.Add(-time.Microsecond), year, month, day) {
			return transition.UnixMicro()
		}
	}
	return t.UnixMicro()
}

func boundAfter(t time.Time) time.Time  { _, end := t.ZoneBounds(); return end }
func boundBefore(t time.Time) time.Time { start, _ := t.ZoneBounds(); return start }

func sameDate(t time.Time, year int, month time.Month, day int) bool {
	y, m, d := t.Date()
	return y == year && m == month && d == day
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
