package core

import (
	"fmt"
	"strings"
)

// What the algorithms need to know of the fields of a Quota beside Limit and Window: all
// but the declarations of those fields.

// Fields are fields of a [Quota], as bits: see [Algorithm.Fields].
type Fields uint16

// The fields that some algorithms use. Their order is that of [Quota.Append], which
// stores keep: a new field is the last.
const (
	FieldBurst Fields = 1 << iota
	FieldCells
	FieldMissing
	FieldMaxWait
	FieldBar
	FieldMaxBar
	FieldAligned
	FieldCalendar

	allFields Fields = 1<<iota - 1
)

const fieldCount = 8

// fieldNames are the names of the fields in errors.
var fieldNames = [fieldCount]string{"burst", "cells", "missing", "wait", "bar", "max-bar", "aligned", "calendar"}

// Numbers returns the fields in the order of the constants: 1 for a true one, and of the
// calendar its unit.
func (q *Quota) Numbers() [fieldCount]int64 {
	var aligned int64
	if q.Aligned {
		aligned = 1
	}
	return [...]int64{q.Burst, q.Cells, q.Missing, q.MaxWait, q.Bar, q.MaxBar, aligned, int64(q.Calendar.Unit)}
}

// Has reports whether f has all fields of g.
func (f Fields) Has(g Fields) bool { return f&g == g }

// set returns the fields of q that are not zero, in 5 ns less than a loop over Numbers:
// it is asked for each charge.
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
		fault("wait of %v: write 0 for any, or at most 366 days", Duration(q.MaxWait))
	}
	if row.fields.Has(FieldBar) && (q.Bar < MinWindow || q.Bar > MaxWindow) {
		fault("bar of %v: write how long a key is barred, 1ms to 366 days", Duration(q.Bar))
	}
	if row.fields.Has(FieldMaxBar) && q.MaxBar != 0 && (q.MaxBar < q.Bar || q.MaxBar > MaxWindow) {
		fault("longest bar of %v: write at least the bar of %v, at most 366 days, or 0 for bars of one length",
			Duration(q.MaxBar), Duration(q.Bar))
	}
}

// misplaced returns an error that lists the fields of q that its algorithm does not use, and the
// algorithms that do.
func (q *Quota) misplaced() error {
	var list []string
	unused := q.set() &^ q.Algorithm.Fields()
	for i, name := range fieldNames {
		if f := Fields(1) << i; unused.Has(f) {
			list = append(list, fmt.Sprintf("%s is for %s", name, algorithmsThat(func(a Algorithm) bool { return a.Fields().Has(f) })))
		}
	}
	return fmt.Errorf("%s: choose that algorithm, or leave it out (this rule is %v)", strings.Join(list, "; "), q.Algorithm)
}

// algorithmsThat returns the names of some algorithms.
func algorithmsThat(has func(Algorithm) bool) string {
	var names []string
	for _, a := range Algorithms() {
		if has(a) {
			names = append(names, a.String())
		}
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return names[0]
}
