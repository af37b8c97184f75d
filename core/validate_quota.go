package core

import (
	"errors"
	"fmt"
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

// Validate returns an error that lists everything wrong with q and what to write, or nil.
func (q Quota) Validate() error {
	var errs []error
	q.check(&errs)
	return errors.Join(errs...)
}

// valid reports whether Validate returns nil. It is cheap enough for every charge.
func (q *Quota) valid() bool {
	row := q.Algorithm.row()
	if row.fields != 0 {
		return q.check(nil)
	}
	return q.Limit >= 1 && q.Limit <= row.maxLimit && q.Window >= MinWindow && q.Window <= MaxWindow && q.set() == 0
}

// check reports whether q is valid. It adds what is wrong to errs, unless that is nil.
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
