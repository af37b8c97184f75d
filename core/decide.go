package core

import "strconv"

// An Algorithm is a limiting method. Its number is part of the stored form and
// never changes.
type Algorithm uint8

const (
	// SlidingLog admits at most the limit in any window, exactly. It is the
	// default. See the type [Log].
	SlidingLog Algorithm = 0
)

// String returns the word for a in the text grammar.
func (a Algorithm) String() string {
	if a == SlidingLog {
		return "sliding-log"
	}
	return "algorithm " + strconv.Itoa(int(a))
}

// A State is what a store remembers of one key of one rule. The methods are
// called in this order, with times that may step back: Advance, then for a
// decision that admits Take, then Outcome. A State is not safe for concurrent
// use.
type State interface {
	// Advance brings the state to now. It forgets nothing, so that a decision
	// that takes nothing leaves no trace, unless the clock has stepped back.
	Advance(q Quota, now int64)

	// Fits reports whether there is room for a cost.
	Fits(q Quota, cost int64) bool

	// Take takes a cost that fits.
	Take(q Quota, cost, now int64)

	// Outcome tells what a charge met: fits is what Fits said of it, and the
	// state is that after the decision.
	Outcome(q Quota, cost, now int64, fits bool) Outcome

	// Expires returns the time from which the state is as good as new.
	Expires(q Quota) int64
}

// NewState returns the state of a key that has never been charged.
func NewState(a Algorithm) State {
	return &Log{}
}

// Decide is the decision that every store must make: at time now, given the
// states of the charges' keys, it takes all charges or none.
func Decide(now int64, charges []Charge, states []State) Decision {
	d := NewDecision(now, len(charges))
	outcomes := d.Outcomes()
	d.Allowed = true
	for i := range charges {
		c := &charges[i]
		states[i].Advance(c.Quota, now)
		outcomes[i].Fits = states[i].Fits(c.Quota, c.Cost)
		d.Allowed = d.Allowed && outcomes[i].Fits
	}
	for i := range charges {
		c := &charges[i]
		if d.Allowed {
			states[i].Take(c.Quota, c.Cost, now)
		}
		outcomes[i] = states[i].Outcome(c.Quota, c.Cost, now, outcomes[i].Fits)
	}
	return d
}
