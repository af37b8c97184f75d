package rules

import (
	"time"

	"github.com/routelimit/limit/core"
)

// An Algorithm is how a rule counts: one of [SlidingLog], [FixedWindow], [SlidingCells],
// [SlidingCounter], [TokenBucket], [LeakyBucket], [Queue], [Concurrency], [Ban] and [Distinct], as
// a value and not as a pointer. docs/algorithms.md compares them.
type Algorithm interface{ algorithm() }

type (
	// SlidingLog ("sliding-log") admits at most Limit in any window, exactly.
	// It remembers each unit, and so takes limits up to 100,000.
	SlidingLog struct{}

	// FixedWindow ("fixed-window") admits at most Limit in each of its windows,
	// but up to twice as many around the end of one. A window begins with the
	// first unit of a key, unless a field says otherwise.
	FixedWindow struct {
		// Aligned starts the windows at multiples of Window since 1970 in UTC, for
		// all keys at once.
		Aligned bool

		// Calendar makes the windows the periods of a time zone. The rule then has no Window.
		Calendar core.Calendar
	}

	// SlidingCells ("sliding-cells") admits at most Limit in any window, and
	// counts a unit for up to a cell longer than it.
	SlidingCells struct {
		Cells int // that divide the window: 2 to 60; 0 means 10
	}

	// SlidingCounter ("sliding-counter") admits about Limit in a window: up to
	// twice as many after an uneven one.
	SlidingCounter struct{}

	// TokenBucket ("token-bucket") admits Burst at once, and Limit a Window after that.
	TokenBucket struct {
		// Burst is how many units may come at once: 1 to 10^12; 0 means Limit.
		Burst int64

		// Missing is how many units a new bucket lacks: 0 for a full bucket, up to Burst for an
		// empty one. It fills from the first request of a key, even if that is refused.
		Missing int64
	}

	// LeakyBucket ("leaky-bucket") is a TokenBucket that always starts with a full
	// Burst, by the name under which other limiters have it.
	LeakyBucket struct {
		Burst int64 // units that may come at once: 1 to 10^12; 0 means Limit
	}

	// Queue ("queue") admits up to Burst requests more than its rate lets
	// through, and each of them waits for its slot: see limit.Decision.Delay.
	Queue struct {
		// Burst is how many units may wait for their slot; 0 means none, so that a
		// request that comes too early is refused.
		Burst int64

		// MaxWait is the longest that a request waits, a whole number of
		// microseconds. A request that would wait longer is refused. 0 means as long
		// as the Burst takes. Keep it below the timeouts of clients and servers.
		MaxWait time.Duration
	}

	// Concurrency ("concurrency") admits a request while fewer than Limit are in flight, 1 to
	// 10,000. Each holds a lease until its handler returns or limit.Decision.Release is called. The
	// lease is renewed meanwhile, and ends by itself a Window after the process has died: at least
	// a second, and 30 s if the rule has none. limit.Rule{Key: limit.ByUser, Limit: 5, Algorithm:
	// limit.Concurrency{}} admits 5 at once of each user.
	Concurrency struct{}

	// Ban ("ban") bars a key for Bar after Limit strikes within the Window, 1 to 1,000, and for
	// twice as long each further time, up to MaxBar. A strike is a request that the other rules of
	// the policy refuse. With a Settle such as [OnStatus](401), so is an admitted request that is
	// answered like that. A barred key is refused whatever the other rules say, and its bars are
	// forgotten when the longest bar has passed without another. A Ban has no member in the headers
	// of a quota.
	Ban struct {
		// Bar and MaxBar are whole numbers of microseconds from 1 ms to 366 days. A
		// MaxBar of 0 means Bar.
		Bar, MaxBar time.Duration
	}

	// Distinct ("distinct") admits at most Limit different Values in any window, 1 to 10,000: user
	// names from one address, for example. A value that was seen within the Window passes, and so
	// does a request without one. A Distinct has no member in the headers of a quota.
	Distinct struct {
		// Values says which values of a request count, such as limit.ByHeader("X-Account"). A
		// request with the value "" is not counted. The store keeps the first 64 bits
		// of the SHA-256 of each value.
		Values KeyResolver
	}
)

func (SlidingLog) algorithm()     {}
func (FixedWindow) algorithm()    {}
func (SlidingCells) algorithm()   {}
func (SlidingCounter) algorithm() {}
func (TokenBucket) algorithm()    {}
func (LeakyBucket) algorithm()    {}
func (Queue) algorithm()          {}
func (Concurrency) algorithm()    {}
func (Ban) algorithm()            {}
func (Distinct) algorithm()       {}

// minLease is the shortest life of a lease: below it, one slow call of the store loses one.
const minLease = time.Second

// noAlgorithm is the number of a pointer, or of a type that is no algorithm.
const noAlgorithm core.Algorithm = 255

// declared returns what r says in the units of package core, without defaults.
func (r *Rule) declared() core.Quota {
	q := core.Quota{Limit: r.Limit, Window: r.Window.Microseconds()}
	switch a := r.Algorithm.(type) {
	case nil, SlidingLog:
		q.Algorithm = core.SlidingLog
	case FixedWindow:
		q.Algorithm, q.Aligned, q.Calendar = core.FixedWindow, a.Aligned, a.Calendar
	case SlidingCells:
		q.Algorithm, q.Cells = core.SlidingCells, int64(a.Cells)
	case SlidingCounter:
		q.Algorithm = core.SlidingCounter
	case TokenBucket:
		q.Algorithm, q.Burst, q.Missing = core.TokenBucket, a.Burst, a.Missing
	case LeakyBucket:
		q.Algorithm, q.Burst = core.LeakyBucket, a.Burst
	case Queue:
		q.Algorithm, q.Burst, q.MaxWait = core.Queue, a.Burst, a.MaxWait.Microseconds()
	case Concurrency:
		q.Algorithm = core.Concurrency
	case Ban:
		q.Algorithm, q.Bar, q.MaxBar = core.Ban, a.Bar.Microseconds(), a.MaxBar.Microseconds()
	case Distinct:
		q.Algorithm = core.Distinct
	default:
		q.Algorithm = noAlgorithm
	}
	return q
}

// algorithmOf returns the algorithm that the fields of q declare. The values are those
// that a Distinct counts.
func algorithmOf(q *core.Quota, values KeyResolver) Algorithm {
	switch q.Algorithm {
	case core.FixedWindow:
		return FixedWindow{Aligned: q.Aligned, Calendar: q.Calendar}
	case core.SlidingCells:
		return SlidingCells{Cells: int(q.Cells)}
	case core.SlidingCounter:
		return SlidingCounter{}
	case core.TokenBucket:
		return TokenBucket{Burst: q.Burst, Missing: q.Missing}
	case core.LeakyBucket:
		return LeakyBucket{Burst: q.Burst}
	case core.Queue:
		return Queue{Burst: q.Burst, MaxWait: core.Duration(q.MaxWait)}
	case core.Concurrency:
		return Concurrency{}
	case core.Ban:
		return Ban{Bar: core.Duration(q.Bar), MaxBar: core.Duration(q.MaxBar)}
	case core.Distinct:
		return Distinct{Values: values}
	}
	return nil
}

// algorithm returns the number of the algorithm.
func (r *Rule) algorithm() core.Algorithm { q := r.declared(); return q.Algorithm }

// Values returns what a Distinct counts, and the zero resolver for other rules.
func (r *Rule) Values() KeyResolver {
	d, _ := r.Algorithm.(Distinct)
	return d.Values
}

// calendar returns the calendar of r, which is zero for most rules.
func (r *Rule) calendar() core.Calendar {
	f, _ := r.Algorithm.(FixedWindow)
	return f.Calendar
}

const defaultCells = 10

// window returns the length of the window: of a calendar period, the usual one.
func (r *Rule) window() time.Duration {
	if r.Window == 0 {
		return core.Duration(r.calendar().Unit.Usual())
	}
	return r.Window
}

// Quota returns what a valid rule allows, in the units of package core, with
// the defaults filled in.
func (r *Rule) Quota() core.Quota {
	q := r.declared()
	q.Window = r.window().Microseconds()
	switch {
	case q.Algorithm == core.SlidingCells && q.Cells == 0:
		q.Cells = defaultCells
	case q.Refills() && !q.Queues() && q.Burst == 0:
		q.Burst = min(max(1, q.Limit), core.MaxLimit) // an invalid limit is one error, not two
	}
	return q
}

func (r *Rule) leases() bool { return r.algorithm() == core.Concurrency }
func (r *Rule) queues() bool { return r.algorithm() == core.Queue }
func (r *Rule) bars() bool   { return r.algorithm() == core.Ban }
func (r *Rule) shows() bool  { return r.algorithm() == core.Distinct }

// noQuota reports whether a rule is no quota that clients spend: it has no headers, and
// costs and settlements of a request in units are not for it.
func (r *Rule) noQuota() bool { return r.bars() || r.shows() }

// empty reports whether a bucket begins empty.
func (r *Rule) empty() bool {
	bucket, _ := r.Algorithm.(TokenBucket)
	return bucket.Missing != 0 && bucket.Missing == r.Quota().Burst
}

// equal reports whether r and s are the same rule by value: their texts are the same,
// with the defaults filled in, and so is what texts do not say. Functions are the same if
// one call of By, CostBy or SettleBy made them.
func (r Rule) equal(s Rule) bool {
	for _, a := range table() {
		if a.same != nil {
			if same, _ := a.same(&r, &s); !same {
				return false
			}
		}
	}
	return r.explicit().String() == s.explicit().String()
}

// explicit returns r with its defaults filled in.
func (r Rule) explicit() Rule {
	q := r.Quota()
	r.Name = r.name()
	if q.Algorithm != noAlgorithm {
		r.Algorithm = algorithmOf(&q, r.Values())
	}
	return r
}

// sameZone reports whether a and b are one time zone. A zone that was loaded twice
// has two addresses, and its value caches the current offset, so sameZone compares
// the offsets in the middle of each month.
func sameZone(a, b *time.Location) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	if a.String() != b.String() {
		return false
	}
	for month := range 12 * 40 {
		t := time.Date(2000, time.Month(1+month), 15, 12, 0, 0, 0, time.UTC)
		_, x := t.In(a).Zone()
		_, y := t.In(b).Zone()
		if x != y {
			return false
		}
	}
	return true
}
