// Package core defines charges, decisions and stores, and implements each limiting algorithm as
// pure functions of a state, a quota and a time. It knows nothing of HTTP, Redis or locks.
//
// All times are microseconds since the Unix epoch and all durations are microseconds, in int64.
// Microseconds fit the 53 bits in which Redis scripts count; nanoseconds do not.
package core

// An Outcome is the result of one charge. Its times are relative to [Decision].At, in microseconds.
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

// A Decision is the outcome of all charges of one [Ask]. It is admitted only if every
// charge fits; otherwise nothing was taken.
type Decision struct {
	Allowed bool
	Mode    Mode // how it was made

	n        uint8  // of outcomes
	overflow uint32 // two bits for each charge: see Overflow

	At    int64 // when the store decided, by the clock that it decides by; of several clocks see TimeOf
	Delay int64 // how long after At an admitted request must wait: see [Queue]

	Forgiven int64 // of charges that are debts: the units beyond their MaxDebt, which were not taken

	// Tag is for a store that wraps another one. What it writes into an admission comes back,
	// unchanged, in the [Return] of it. Other stores leave it 0.
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

// restart is start for a decision that has been made before. It leaves outcomes of as many charges
// as they are, for the caller to write: a Decision is large.
func (d *Decision) restart(at int64, n int) {
	if int(d.n) != n || d.many != nil || d.times != nil {
		*d = Decision{}
	}
	d.Mode, d.overflow, d.Delay, d.Forgiven, d.Tag = 0, 0, 0, 0, 0
	d.start(at, n)
}

// Outcomes returns one outcome for each charge, in the order of the charges.
func (d *Decision) Outcomes() []Outcome {
	if d.many != nil {
		return d.many[:d.n]
	}
	return d.few[:d.n]
}

// Clone returns a decision whose outcomes are its own: those of a copy may not be.
func (d *Decision) Clone() Decision {
	copied := *d
	if d.many != nil {
		many := *d.many
		copied.many = &many
	}
	return copied
}

// RetryAfter returns how long until the request would be admitted if no other
// request came: the longest of the outcomes' times, 0 if it is admitted, and
// [Never] if one of the charges can never fit.
func (d *Decision) RetryAfter() int64 {
	var longest int64
	for _, o := range d.Outcomes() {
		if o.RetryAfter == Never {
			return Never
		}
		longest = max(longest, o.RetryAfter)
	}
	return longest
}
