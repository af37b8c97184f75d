// Package core defines charges, decisions and stores, and implements each
// limiting algorithm as pure functions of a state, a quota and a time. It knows
// nothing of HTTP, Redis or locks.
//
// All times are microseconds since the Unix epoch and all durations are
// microseconds, in int64. Microseconds fit the 53 bits in which Redis scripts
// count; nanoseconds do not.
package core

import "context"

// A Charge is one rule applied to one request. It is all that a store sees.
type Charge struct {
	Rule  string // the name of the rule, unique within its policy
	Key   string // requests with the same key share the quota; any bytes, or empty
	Quota Quota
	Cost  int64 // units; 0 looks without taking, and fits unless the rule is a [Ban]

	// Reserve is how many units the charge must leave to others: it fits if there
	// is room for Cost and Reserve, and takes Cost. A Cost of 0 always fits. It is
	// for requests that must not use the last part of a limit. [Ban] and [Distinct]
	// cannot have it.
	Reserve int64

	// Alone makes the charge decide by itself: it is taken if it fits, whatever
	// becomes of the others, and never refuses or delays the request. It is for
	// rules that are only watched. [Concurrency], [Ban] and [Distinct] cannot have
	// it.
	Alone bool

	// Debt makes the charge one for units that were used already, Age µs before the
	// decision: what a process admitted while the store was away, or what something
	// turned out to cost. It is taken whatever is left, and even above the limit, as if it
	// had been taken then. It never refuses, and a [Queue] does not delay it. Where that
	// cannot be told exactly there is never more room than that, but for what [State].Owe
	// documents. All charges of a decision are debts, or none.
	Debt bool
	Age  int64 // 0 to [MaxTime]; only with Debt

	// ID says what the charge is for, where the algorithm is [Quota.Identified]: for
	// [Concurrency] the lease that holds its units, needed for a Cost above 0; for
	// [Distinct] the value that is shown, 0 for none. Others ignore it.
	ID uint64

	// OnError says what to do if the store fails. Stores ignore it; package
	// guard, which wraps a store, applies it.
	OnError OnError
}

// An Outcome is the result of one charge. Its times are relative to
// [Decision].At, in microseconds.
type Outcome struct {
	// Remaining is how many units are left after the decision, at least 0.
	Remaining int64

	// RetryAfter is how long until the charge would fit if no other request
	// came: 0 if it fits, [Never] if its cost and reserve are above the limit.
	RetryAfter int64

	// MoreAfter is how long until Remaining grows: 0 if the quota is full,
	// and 0 if the charge does not fit (RetryAfter says more then).
	MoreAfter int64

	// ResetAfter is how long until the quota is full again; 0 if it is. For a request that
	// got a returned slot of a [Queue], it is how long until the end of that slot.
	ResetAfter int64
}

// Fits reports whether the quota had room for the charge.
func (o Outcome) Fits() bool { return o.RetryAfter == 0 }

// Never is the RetryAfter of a charge that cannot fit, however long it waits.
const Never int64 = -1

// A Decision is the outcome of all charges of one request. The request is
// admitted only if every charge fits; otherwise nothing was taken. Charges that
// decide alone neither count for that nor depend on it: see [Decision.Took].
type Decision struct {
	Allowed bool
	Mode    Mode // how it was made

	n        uint8  // of outcomes
	alone    uint16 // a bit for each charge: see Alone
	overflow uint32 // two bits for each charge: see Overflow

	At    int64 // when the store decided, by the clock that it decides by; of several clocks see TimeOf
	Delay int64 // how long after At an admitted request must wait: see [Queue]

	// Tag is for a store that wraps another one. What the wrapper writes into an
	// admission comes back, unchanged, in the [Return] of it. Other stores leave
	// it 0.
	Tag int64

	times *[MaxCharges]int64 // of the outcomes, if not At: see TimeOf

	few  [4]Outcome // most policies have few rules; these need no allocation
	many *[MaxCharges]Outcome
}

// NewDecision returns a decision at the given time with room for n outcomes.
func NewDecision(at int64, n int) (d Decision) {
	d.start(at, n)
	return d
}

func (d *Decision) start(at int64, n int) {
	d.At, d.n = at, uint8(n)
	if n > len(d.few) {
		d.many = new([MaxCharges]Outcome)
	}
}

// Outcomes returns one outcome for each charge, in the order of the charges.
func (d *Decision) Outcomes() []Outcome {
	if d.many != nil {
		return d.many[:d.n]
	}
	return d.few[:d.n]
}

// RetryAfter returns how long until the request would be admitted if no other
// request came: the longest of the outcomes' times, 0 if it is admitted, and
// [Never] if one of the charges can never fit. Charges that decide alone do not
// count.
func (d *Decision) RetryAfter() int64 {
	var longest int64
	for i, o := range d.Outcomes() {
		switch {
		case d.Alone(i):
		case o.RetryAfter == Never:
			return Never
		default:
			longest = max(longest, o.RetryAfter)
		}
	}
	return longest
}

// A Store keeps the state of quotas and changes it atomically.
//
// Implementations are safe for concurrent use and pass the suite in package
// storetest. A store that adds something around another one (a cache, a guard,
// an observer) is itself a Store.
type Store interface {
	// Take decides the charges of one request on a policy as one: it takes
	// the cost of each, or refuses and takes nothing. Charges that decide alone
	// are taken or not by themselves. It reads one clock once.
	//
	// A refusal is a Decision, not an error. An error means that the store
	// could not decide. Then nothing was taken, unless the error comes from a
	// context or a connection; in that case the outcome is unknown. A store that
	// knows until when such a call may still take leases says so: the error has, or
	// wraps one that has, a method MayTakeUntil() time.Time.
	//
	// The charges name distinct rules. Quotas may differ from those of an
	// earlier call: a changed limit keeps what has been spent. Take does not
	// keep the slice, but may keep the strings in it.
	Take(ctx context.Context, policy string, charges []Charge) (Decision, error)

	// Renew begins the life of leases anew. held[i] reports whether the lease of
	// charges[i] was still held; a lease that has ended cannot be renewed. The
	// charges are of [Concurrency] only, and at most [MaxLeaseCharges]. They may name
	// a rule and a key several times, with other ids; their Cost does not matter. The
	// call may be repeated. After an error, leases with held[i] were renewed, and it
	// is unknown whether the others were; held may be nil.
	// A lease that was not renewed for a Window has ended.
	Renew(ctx context.Context, policy string, charges []Charge) (held []bool, err error)

	// Release ends leases, of charges as Renew takes them. It does nothing to a
	// lease that is not held or has ended, so the call may be repeated.
	Release(ctx context.Context, policy string, charges []Charge) error

	// Return gives units back, and reports for each of returns how many: see
	// [Return]. 0 is normal for a return that comes too late. After an error,
	// nothing was given back, or the outcome is unknown, as with Take.
	Return(ctx context.Context, policy string, returns []Return) ([]int64, error)

	// Reset forgets a key of a rule: its quota is full again, whatever its
	// algorithm. After an error the outcome is unknown. It may be repeated.
	Reset(ctx context.Context, policy, rule, key string) error
}
