package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds on what can be asked of a store.
const (
	MaxCharges = 16                          // charges in one call of a store
	MinWindow  = 1_000                       // 1 ms
	MaxWindow  = 366 * 24 * 3600 * 1_000_000 // 366 days
	MaxLog     = 100_000                     // the limit of a [SlidingLog], which logs every unit
	MaxLeases  = 10_000                      // the limit of a [Concurrency], which lists every lease
	MaxStrikes = 1_000                       // the limit of a [Ban], which lists every strike
	MaxValues  = 10_000                      // the limit of a [Distinct], which lists every value
	MaxLimit   = 1_000_000_000_000           // the limit and the burst of the others
	MaxCells   = 60
	MaxFill    = 10 * MaxWindow   // the time that a whole burst takes to come back
	MaxCost    = int64(1)<<48 - 1 // units in one charge

	MaxLeaseCharges = 256 // leases renewed or released in one call
)

// Fields are fields of a [Quota], as bits: see [Algorithm.Fields].
type Fields uint8

// The fields that some algorithms use.
const (
	FieldBurst Fields = 1 << iota
	FieldCells
	FieldMissing
	FieldMaxWait
	FieldAligned
	FieldCalendar
	FieldBar
	FieldMaxBar

	allFields Fields = 1<<iota - 1
)

// Has reports whether f has all fields of g.
func (f Fields) Has(g Fields) bool { return f&g == g }

// set returns the fields of q that are not zero.
func (q *Quota) set() (f Fields) {
	if q.Burst != 0 {
		f |= FieldBurst
	}
	if q.Cells != 0 {
		f |= FieldCells
	}
	if q.Missing != 0 {
		f |= FieldMissing
	}
	if q.MaxWait != 0 {
		f |= FieldMaxWait
	}
	if q.Aligned {
		f |= FieldAligned
	}
	if q.Calendar.Unit != 0 || q.Calendar.Zone != nil {
		f |= FieldCalendar
	}
	if q.Bar != 0 {
		f |= FieldBar
	}
	if q.MaxBar != 0 {
		f |= FieldMaxBar
	}
	return f
}

// Validate returns an error that lists everything wrong with q and what to
// write instead, or nil.
func (q Quota) Validate() error {
	var errs []error
	q.check(&errs)
	return errors.Join(errs...)
}

// valid reports whether Validate returns nil. It is cheap enough for every charge.
func (q *Quota) valid() bool { return q.check(nil) }

// check reports whether q is valid. It adds an error to errs, unless that is nil, for
// everything that is wrong.
func (q *Quota) check(errs *[]error) (valid bool) {
	valid = true
	fault := func(format string, args ...any) {
		if valid = false; errs != nil {
			*errs = append(*errs, fmt.Errorf(format, args...))
		}
	}
	row := q.Algorithm.row()
	switch {
	case q.Limit < 1:
		fault("limit %d: write at least 1", q.Limit)
	case q.Limit > row.maxLimit && row.tooLarge != "":
		fault("limit %d "+row.tooLarge, q.Limit, row.maxLimit)
	case q.Limit > row.maxLimit:
		fault("limit %d: write at most %d", q.Limit, row.maxLimit)
	}
	if row.fields != 0 && row != &unknown {
		q.checkFields(row, fault)
	}
	if row == &unknown {
		fault("unknown algorithm %d: write one of the constants, such as TokenBucket", q.Algorithm)
	}
	if q.Window < MinWindow || q.Window > MaxWindow {
		fault("window of %d µs: write between 1ms and 366 days", q.Window)
	}
	if q.set()&^row.fields != 0 {
		fault("%w", q.misplaced())
	}
	return valid
}

// checkFields calls fault for what is wrong with the fields that the algorithm uses.
func (q *Quota) checkFields(row *row, fault func(format string, args ...any)) {
	if q.Aligned && q.Calendar.Unit != 0 {
		fault("aligned and calendar: write one of them")
	}
	if err := q.Calendar.validate(); err != nil {
		fault("%w", err)
	}
	if row.fields.Has(FieldCells) && (q.Cells < 2 || q.Cells > MaxCells) {
		fault("%d cells: write 2 to %d", q.Cells, MaxCells)
	}
	if row.fields.Has(FieldBurst) {
		meaning, back := "", "come back"
		if row.queues {
			meaning, back = "how many may wait, ", "pass"
		}
		if q.Burst < row.minBurst || q.Burst > MaxLimit {
			fault("burst %d: write %s%d to %d", q.Burst, meaning, row.minBurst, int64(MaxLimit))
		}
		if q.fills() > MaxFill {
			fault("burst %d takes more than 10 years to %s: write a smaller one", q.Burst, back)
		}
	}
	if row.fields.Has(FieldMissing) && (q.Missing < 0 || q.Missing > q.Burst) {
		fault("%d missing: write 0 for a full bucket to %d for an empty one", q.Missing, q.Burst)
	}
	if row.fields.Has(FieldMaxWait) && (q.MaxWait < 0 || q.MaxWait > MaxWindow) {
		fault("wait of %v: write 0 for any, or at most 366 days", micros(q.MaxWait))
	}
	if row.fields.Has(FieldBar) && (q.Bar < MinWindow || q.Bar > MaxWindow) {
		fault("bar of %v: write how long a key is barred, 1ms to 366 days", micros(q.Bar))
	}
	if row.fields.Has(FieldMaxBar) && q.MaxBar != 0 && (q.MaxBar < q.Bar || q.MaxBar > MaxWindow) {
		fault("longest bar of %v: write at least the bar of %v, at most 366 days, or 0 for bars of one length",
			micros(q.MaxBar), micros(q.Bar))
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// fieldNames are the names of the fields in errors.
var fieldNames = [...]struct {
	field Fields
	name  string
}{
	{FieldBurst, "burst"}, {FieldCells, "cells"}, {FieldMissing, "missing"}, {FieldMaxWait, "wait"},
	{FieldAligned, "aligned"}, {FieldCalendar, "calendar"}, {FieldBar, "bar"}, {FieldMaxBar, "max-bar"},
}

// misplaced returns an error that lists the fields of q that its algorithm does not
// use, and the algorithms that do.
func (q *Quota) misplaced() error {
	var list []string
	unused := q.set() &^ q.Algorithm.Fields()
	for _, f := range fieldNames {
		if unused.Has(f.field) {
			list = append(list, fmt.Sprintf("%s is for %s", f.name, algorithmsWith(f.field)))
		}
	}
	return fmt.Errorf("%s: choose that algorithm, or leave it out (this rule is %v)", strings.Join(list, "; "), q.Algorithm)
}

// algorithmsWith returns the names of the algorithms that use a field.
func algorithmsWith(f Fields) string {
	var names []string
	for _, a := range Algorithms() {
		if a.Fields().Has(f) {
			names = append(names, a.String())
		}
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return names[0]
}
