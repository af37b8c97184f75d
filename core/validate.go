package core

import (
	"errors"
	"fmt"
)

// Bounds on what can be asked of a store.
const (
	MaxCharges = 16                          // charges in one decision
	MinWindow  = 1_000                       // 1 ms
	MaxWindow  = 366 * 24 * 3600 * 1_000_000 // 366 days
	MaxLog     = 100_000                     // the limit of a [SlidingLog], which logs every unit
	MaxCost    = int64(1)<<48 - 1            // units in one charge
)

// Validate returns an error that lists everything wrong with q and what to
// write instead, or nil.
func (q Quota) Validate() error {
	var errs []error
	if q.Algorithm != SlidingLog {
		errs = append(errs, fmt.Errorf("unknown algorithm %d", q.Algorithm))
	}
	if q.Limit < 1 {
		errs = append(errs, fmt.Errorf("limit %d: write at least 1", q.Limit))
	}
	if q.Limit > MaxLog {
		errs = append(errs, fmt.Errorf("limit %d is too large for an exact window, which logs each unit: "+
			"write at most %d, such as the same rate over a shorter window", q.Limit, MaxLog))
	}
	if q.Window < MinWindow || q.Window > MaxWindow {
		errs = append(errs, fmt.Errorf("window of %d µs: write between 1ms and 366 days", q.Window))
	}
	return errors.Join(errs...)
}

// ErrCharges is wrapped by the errors of [ValidateCharges].
var ErrCharges = errors.New("invalid charges")

// ValidateCharges returns an error if charges cannot be decided as one: none
// or too many of them, a rule named twice, an invalid quota or cost. Every
// store calls it first.
func ValidateCharges(charges []Charge) error {
	if len(charges) == 0 || len(charges) > MaxCharges {
		return fmt.Errorf("%w: %d of them: a decision takes 1 to %d", ErrCharges, len(charges), MaxCharges)
	}
	for i := range charges {
		c := &charges[i]
		if c.Cost < 0 || c.Cost > MaxCost {
			return fmt.Errorf("%w: rule %q: cost %d: write 0 to %d", ErrCharges, c.Rule, c.Cost, MaxCost)
		}
		if !c.Quota.valid() {
			return fmt.Errorf("%w: rule %q: %w", ErrCharges, c.Rule, c.Quota.Validate())
		}
		for j := range i {
			if charges[j].Rule == c.Rule {
				return fmt.Errorf("%w: rule %q is charged twice", ErrCharges, c.Rule)
			}
		}
	}
	return nil
}

// valid is Validate without the words.
func (q Quota) valid() bool {
	return q.Algorithm == SlidingLog && q.Limit >= 1 && q.Limit <= MaxLog &&
		q.Window >= MinWindow && q.Window <= MaxWindow
}
