package limit

import (
	"maps"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// The algorithms, how a rule counts, with their words in the text grammar.
// docs/algorithms.md compares them.
const (
	// SlidingLog ("sliding-log") admits at most Limit in any window, exactly.
	// It remembers each unit, and so takes limits up to 100,000.
	SlidingLog = core.SlidingLog

	// FixedWindow ("fixed-window") admits at most Limit in each of its windows,
	// but up to twice as many around the end of one. A window begins with the
	// first unit of a key, with Aligned at multiples of its length, and with a
	// Calendar when its period does.
	FixedWindow = core.FixedWindow

	// SlidingCells ("sliding-cells") admits at most Limit in any window, and
	// counts a unit for up to a cell longer than it.
	SlidingCells = core.SlidingCells

	// SlidingCounter ("sliding-counter") admits about Limit in a window: up to
	// twice as many after an uneven one.
	SlidingCounter = core.SlidingCounter

	// TokenBucket ("token-bucket") admits Burst at once, and Limit a Window
	// after that.
	TokenBucket = core.TokenBucket

	// LeakyBucket ("leaky-bucket") admits what a TokenBucket does. It remembers
	// one number for each key, and always starts with a full Burst.
	LeakyBucket = core.LeakyBucket

	// Queue ("queue") admits up to Burst requests more than its rate lets
	// through, and each of them waits for its slot: see [Decision].Delay.
	Queue = core.Queue

	// Concurrency ("concurrency") admits a request while fewer than Limit are
	// in flight, 1 to 10,000. Each holds a lease until its handler returns or
	// [Decision.Release] is called. The lease is renewed meanwhile, and ends by
	// itself a Window after the process has died: at least a second.
	Concurrency = core.Concurrency

	// Ban ("ban") bars a key for Bar after Limit strikes within the Window, 1 to
	// 1,000, and for twice as long each further time, up to MaxBar. A strike is a
	// request that the other rules of the policy refuse. With a Settle such as
	// [OnStatus](401), so is an admitted request that is answered like that. A barred
	// key is refused whatever the other rules say, and its bars are forgotten when
	// the longest bar has passed without another. A Ban has no member in the headers
	// of a quota.
	Ban = core.Ban

	// Distinct ("distinct") admits at most Limit different Values in any window, 1 to
	// 10,000: user names from one address, for example. A value that was seen within
	// the Window passes, and so does a request without one. A Distinct has no member
	// in the headers of a quota.
	Distinct = core.Distinct
)

// A Calendar makes the windows of a [FixedWindow] the hours, days, weeks (from
// Monday) or months of a time zone. The zero Calendar is none.
type Calendar = core.Calendar

// The units of a [Calendar].
const (
	Hour  = core.Hour
	Day   = core.Day
	Week  = core.Week
	Month = core.Month
)

// calendarUnits are the usual lengths of the units.
var calendarUnits = [...]time.Duration{Hour: time.Hour, Day: day, Week: 7 * day, Month: 30 * day}

const day = 24 * time.Hour

const defaultCells = 10

// window returns the length of the window: of a calendar period, the usual one.
func (r Rule) window() time.Duration {
	if u := int(r.Calendar.Unit); r.Window == 0 && u > 0 && u < len(calendarUnits) {
		return calendarUnits[u]
	}
	return r.Window
}

// quota returns what a valid rule allows, in the units of package core, with
// the defaults filled in.
func (r Rule) quota() core.Quota {
	q := core.Quota{Algorithm: r.Algorithm, Limit: r.Limit, Window: r.window().Microseconds(),
		Burst: r.Burst, Cells: int64(r.Cells), Missing: r.Missing, MaxWait: r.MaxWait.Microseconds(),
		Bar: r.Bar.Microseconds(), MaxBar: r.MaxBar.Microseconds(), Aligned: r.Aligned, Calendar: r.Calendar}
	fields := q.Algorithm.Fields()
	if fields.Has(core.FieldCells) && q.Cells == 0 {
		q.Cells = defaultCells
	}
	if fields.Has(core.FieldBurst) && q.Refills() && !q.Queues() && q.Burst == 0 {
		q.Burst = min(max(1, q.Limit), core.MaxLimit) // an invalid limit is one error, not two
	}
	return q
}

func (r Rule) leases() bool {
	q := r.quota()
	return q.Leases()
}

// noQuota reports whether a rule is no quota that clients spend: it has no headers, and
// costs and settlements of a request in units are not for it.
func (r *Rule) noQuota() bool { return r.Algorithm == Ban || r.Algorithm == Distinct }

func (r *Rule) bars() bool           { return r.Algorithm == Ban }
func (r *Rule) distinct() bool       { return r.Algorithm == Distinct }
func (r *Rule) values() *KeyResolver { return &r.Values }
func (r *Rule) shadow() bool         { return r.Shadow }
func (r *Rule) enforced() int        { return r.Enforced }
func (r *Rule) replaces() string     { return r.Replaces }

func (r Rule) queues() bool {
	q := r.quota()
	return q.Queues()
}

// equal reports whether r and s are the same rule by value. Functions are the same if
// one call of By, CostBy or SettleBy made them.
func (r Rule) equal(s Rule) bool {
	a, b := r.quota(), s.quota()
	zones := sameZone(a.Calendar.Zone, b.Calendar.Zone)
	a.Calendar.Zone, b.Calendar.Zone = nil, nil
	return zones && a == b && r.Cost == s.Cost && r.Settle == s.Settle &&
		r.name() == s.name() && r.Key.equal(s.Key) && r.Values.equal(s.Values) &&
		r.OnStoreError == s.OnStoreError && r.OnRefusal.equal(&s.OnRefusal) &&
		r.Shadow == s.Shadow && r.Enforced == s.Enforced && r.Replaces == s.Replaces && r.Hidden == s.Hidden &&
		maps.Equal(r.Plans, s.Plans) && maps.Equal(r.Reserve, s.Reserve) && slices.Equal(r.Exempt, s.Exempt)
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

// What a rule may do while the store is unavailable, with the words in the text
// grammar. Errors that a request can cause do not count as that: they are answered
// with 503, whatever rules say. If the rules on a request differ, one that refuses
// refuses it. Local rules admit it together or not at all.
const (
	// Local ("on-error local") lets this process decide, by what it has admitted.
	// See [Options].Instances.
	Local = core.Local

	// Allow ("on-error allow") admits every request to the rule, and charges
	// none.
	Allow = core.Allow

	// Refuse ("on-error refuse") refuses every request with 503 and a Retry-After,
	// until the store is asked the next time. It is for rules that protect a login.
	Refuse = core.Refuse
)

// The modes: how a [Decision] was made.
const (
	ModeExact      = core.ModeExact      // by the store
	ModeOverflow   = core.ModeOverflow   // by the store, on a quota that keys share beyond MaxKeys: never above the limit
	ModeRemembered = core.ModeRemembered // refused by this process, which remembers a refusal of the store: see package refusals
	ModeLocal      = core.ModeLocal      // by this process, without the store
	ModeAllowed    = core.ModeAllowed    // admitted without the store, since a rule says Allow
	ModeRefused    = core.ModeRefused    // refused without the store, since a rule says Refuse
	ModeExempt     = core.ModeExempt     // admitted without asking any rule: see [Options].Exempt
	ModeBarred     = core.ModeBarred     // refused without asking any rule: see [Options].Bar
)
