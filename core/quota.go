package core

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// An Algorithm is a limiting method. Its number is part of the stored form and
// never changes.
type Algorithm uint8

// The algorithms. Each is documented at the type of its state.
const (
	SlidingLog     Algorithm = iota // at most Limit in any window, exactly: [Log]
	FixedWindow                     // at most Limit in each window of a clock: [Window]
	SlidingCells                    // at most Limit in any window, in cells: [Cells]
	SlidingCounter                  // about Limit in a window: [Counter]
	TokenBucket                     // bursts, refilled at a rate: [Bucket]
	LeakyBucket                     // a rate with a tolerance (GCRA): [Meter]
	Queue                           // requests one after the other, at a rate: [Line]
	Concurrency                     // at most Limit at the same time: [Leases]
)

var algorithmNames = [...]string{"sliding-log", "fixed-window", "sliding-cells", "sliding-counter",
	"token-bucket", "leaky-bucket", "queue", "concurrency"}

// String returns the word for a in the text grammar.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "algorithm " + strconv.Itoa(int(a))
}

// A Quota is how much a rule allows: Limit units a Window, by an algorithm. The
// other fields are for the algorithms that they name, and zero for the rest.
// [Quota.Validate] says what is allowed; the zero Quota is not.
type Quota struct {
	Algorithm Algorithm
	Limit     int64 // units, at least 1
	Window    int64 // microseconds; Concurrency: how long a lease lives that is not renewed

	Burst   int64 // TokenBucket, LeakyBucket: units at once, at least 1; Queue: units that may wait
	Cells   int64 // SlidingCells: how many, 2 to 60
	Missing int64 // TokenBucket: tokens that a new bucket lacks, at most Burst
	MaxWait int64 // Queue: the longest wait in microseconds; 0 for any

	Aligned  bool     // FixedWindow: windows begin at multiples of Window since the epoch
	Calendar Calendar // FixedWindow: windows are calendar periods; Window is their usual length
}

// Capacity returns the largest cost that can ever fit.
func (q *Quota) Capacity() int64 {
	switch q.Algorithm {
	case TokenBucket, LeakyBucket:
		return q.Burst
	case Queue:
		return q.Burst + 1
	}
	return q.Limit
}

// fills returns how long a burst takes at the rate of q.
func (q *Quota) fills() int64 {
	if q.Limit < 1 || q.Window < 1 || q.Burst < 0 {
		return 0
	}
	fills, _ := muldiv(q.Burst, q.Window, q.Limit)
	return fills
}

// Bounds on what can be asked of a store.
const (
	MaxCharges = 16                          // charges in one decision
	MinWindow  = 1_000                       // 1 ms
	MaxWindow  = 366 * 24 * 3600 * 1_000_000 // 366 days
	MaxLog     = 100_000                     // the limit of a [SlidingLog], which logs every unit
	MaxLeases  = 10_000                      // the limit of a [Concurrency], which lists every lease
	MaxLimit   = 1_000_000_000_000           // the limit and the burst of the others
	MaxCells   = 60
	MaxFill    = 10 * MaxWindow   // the time that a whole burst takes to come back
	MaxCost    = int64(1)<<48 - 1 // units in one charge
)

// Validate returns an error that lists everything wrong with q and what to
// write instead, or nil.
func (q Quota) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if q.Limit < 1 {
		wrong("limit %d: write at least 1", q.Limit)
	}
	switch q.Algorithm {
	case SlidingLog:
		if q.Limit > MaxLog {
			wrong("limit %d is too large for an exact window, which logs each unit: write at most %d, "+
				"or algorithm sliding-cells, whose windows are up to a cell longer", q.Limit, MaxLog)
		}
	case FixedWindow:
		if q.Aligned && q.Calendar.Unit != 0 {
			wrong("aligned and calendar: write one of them")
		}
		if err := q.Calendar.validate(); err != nil {
			errs = append(errs, err)
		}
	case SlidingCells:
		if q.Cells < 2 || q.Cells > MaxCells {
			wrong("%d cells: write 2 to %d", q.Cells, MaxCells)
		}
	case SlidingCounter:
	case TokenBucket, LeakyBucket:
		if q.Burst < 1 || q.Burst > MaxLimit {
			wrong("burst %d: write 1 to %d", q.Burst, int64(MaxLimit))
		}
		if q.Algorithm == TokenBucket && (q.Missing < 0 || q.Missing > q.Burst) {
			wrong("%d missing: write 0 for a full bucket to %d for an empty one", q.Missing, q.Burst)
		}
		if q.fills() > MaxFill {
			wrong("burst %d takes more than 10 years to come back: write a smaller one", q.Burst)
		}
		q.Burst = 0
		if q.Algorithm == TokenBucket {
			q.Missing = 0
		}
	case Queue:
		if q.Burst < 0 || q.Burst > MaxLimit {
			wrong("burst %d: write how many may wait, 0 to %d", q.Burst, int64(MaxLimit))
		}
		if q.fills() > MaxFill {
			wrong("burst %d takes more than 10 years to pass: write a smaller one", q.Burst)
		}
		if q.MaxWait < 0 || q.MaxWait > MaxWindow {
			wrong("wait of %v: write 0 for any, or at most 366 days", time.Duration(q.MaxWait)*time.Microsecond)
		}
		q.Burst, q.MaxWait = 0, 0
	case Concurrency:
		if q.Limit > MaxLeases {
			wrong("limit %d is too large for concurrency, which lists each lease: write at most %d, "+
				"or a key that fewer share", q.Limit, MaxLeases)
		}
	default:
		wrong("unknown algorithm %d: write one from SlidingLog to Concurrency", q.Algorithm)
	}
	if q.Limit > MaxLimit && q.Algorithm != SlidingLog && q.Algorithm != Concurrency {
		wrong("limit %d: write at most %d", q.Limit, int64(MaxLimit))
	}
	if q.Window < MinWindow || q.Window > MaxWindow {
		wrong("window of %d µs: write between 1ms and 366 days", q.Window)
	}
	if q.Burst != 0 || q.Missing != 0 || q.MaxWait != 0 || q.Cells != 0 && q.Algorithm != SlidingCells ||
		(q.Aligned || q.Calendar != Calendar{}) && q.Algorithm != FixedWindow {
		wrong("algorithm %v: burst, cells, missing, wait, aligned or calendar is not for it: leave it out", q.Algorithm)
	}
	return errors.Join(errs...)
}

// valid is Validate for a quota that is asked of every time: of the default
// algorithm without the words, and of the others with what could break a state.
func (q *Quota) valid() bool {
	if q.Limit < 1 || q.Limit > MaxLimit || q.Window < MinWindow || q.Window > MaxWindow {
		return false
	}
	switch q.Algorithm {
	case SlidingLog:
		return q.Limit <= MaxLog
	case SlidingCells:
		return q.Cells >= 2 && q.Cells <= MaxCells
	case TokenBucket, LeakyBucket:
		return q.Burst >= 1 && q.Burst <= MaxLimit && q.Missing >= 0 && q.Missing <= q.Burst && q.fills() <= MaxFill
	case Queue:
		return q.Burst >= 0 && q.Burst <= MaxLimit && q.MaxWait >= 0 && q.MaxWait <= MaxWindow && q.fills() <= MaxFill
	case FixedWindow:
		return q.Calendar.validate() == nil
	case Concurrency:
		return q.Limit <= MaxLeases
	}
	return q.Algorithm == SlidingCounter
}
