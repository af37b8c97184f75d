package core

import (
	"errors"
	"fmt"
)

// A Return gives units of a charge that was taken back to its quota: all of them, as if it had
// never been taken, or some, as if it had cost less.
//
// A key never has more after a return than if the units had not been taken. Units that have left
// their window, or have been refilled, are not given back again. Each algorithm documents at its
// Return method what it gives back. It may be less if other requests took units meanwhile.
//
// Return an admission once: stores do not number admissions. A second return, or one of units
// taken before a Reset or a step back of the clock, may give back what other requests have taken,
// though never more than is missing.
type Return struct {
	Charge           // as admitted, its quota included, but Cost is the units to give back, at most what it took
	At         int64 // of the admission: [Decision].At
	Remaining  int64 // of the admission: [Outcome].Remaining, for TokenBucket and LeakyBucket
	ResetAfter int64 // of the admission: [Outcome].ResetAfter, for Queue, TokenBucket and LeakyBucket
	Mode       Mode  // of the admission: [Decision].Mode, for decorators of a store
	Tag        int64 // of the admission: [Decision].Tag, likewise
}

// Return returns what gives back all that the i-th charge c of an admission took.
func (d *Decision) Return(i int, c Charge) Return {
	o := &d.Outcomes()[i]
	return Return{Charge: c, At: d.TimeOf(i), Remaining: o.Remaining, ResetAfter: o.ResetAfter, Mode: d.Mode, Tag: d.Tag}
}

// A Returned is what came of a [Return].
type Returned struct {
	Units   int64   // given back; 0 is normal for a return that comes too late
	Outcome Outcome // of the key after all returns of the call, as that of a charge of cost 0
}

// Look returns the outcome of a charge like c of cost 0 at now, given the state of its key.
func Look(now int64, c Charge, state State) Outcome {
	c.Cost, c.Reserve = 0, 0
	d := Decide(now, []Charge{c}, []State{state})
	return d.few[0]
}

// MaxTime is the latest time that a [Return] may name, in the year 2255: the
// doubles of Redis scripts are exact up to it.
const MaxTime = int64(1)<<53 - 1

// ValidateReturns returns an error that wraps [ErrCharges] if a number of returns is one
// that no decision has, or if there are none or too many. Every store calls it first.
func ValidateReturns(returns []Return) error {
	if len(returns) == 0 || len(returns) > MaxCharges {
		return fmt.Errorf("%w: %d to give back: write 1 to %d", ErrCharges, len(returns), MaxCharges)
	}
	var errs []error
	for i := range returns {
		r := &returns[i]
		if err := r.validTimes(); err != nil {
			errs = append(errs, err)
		}
		if r.Quota.Leases() {
			errs = append(errs, fmt.Errorf("%w: rule %q: a lease is released, not returned: call Release", ErrCharges, r.Rule))
		}
		if err := r.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// validTimes returns an error if a number of the admission is one that no decision has.
func (r *Return) validTimes() error {
	for _, n := range [...]struct {
		name      string
		got, most int64
	}{
		{"time", r.At, MaxTime}, {"remaining", r.Remaining, MaxLimit}, {"reset", r.ResetAfter, 2 * MaxFill},
	} {
		if n.got < 0 || n.got > n.most {
			return fmt.Errorf("%w: rule %q: %s %d of the admission: write what its decision says, 0 to %d",
				ErrCharges, r.Rule, n.name, n.got, n.most)
		}
	}
	return nil
}
