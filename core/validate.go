package core

import (
	"errors"
	"fmt"
)

// ErrCharges is wrapped by the errors of [ValidateCharges] and [ValidateReturns].
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
		if uint64(c.Cost) > uint64(MaxCost) { // or below 0
			return fmt.Errorf("%w: rule %q: cost %d: write 0 to %d", ErrCharges, c.Rule, c.Cost, MaxCost)
		}
		if uint64(c.Reserve) > uint64(MaxCost) {
			return fmt.Errorf("%w: rule %q: reserve %d: write 0 to %d", ErrCharges, c.Rule, c.Reserve, MaxCost)
		}
		if c.Quota.faults() != 0 {
			return fmt.Errorf("%w: rule %q: %w", ErrCharges, c.Rule, c.Quota.Validate())
		}
		if c.Quota.Leases() && c.Cost > 0 && c.ID == 0 {
			return fmt.Errorf("%w: rule %q: a lease without an id: write a random one that is not 0", ErrCharges, c.Rule)
		}
		if c.Alone && (c.Quota.Identified() || c.Quota.Bars()) {
			return fmt.Errorf("%w: rule %q: %v cannot decide alone: leave out Alone, or write another algorithm",
				ErrCharges, c.Rule, c.Quota.Algorithm)
		}
		switch {
		case c.Debt != charges[0].Debt:
			return fmt.Errorf("%w: rule %q: debts beside other charges: make two decisions", ErrCharges, c.Rule)
		case uint64(c.Age) > uint64(MaxTime) || c.Age > 0 && !c.Debt:
			return fmt.Errorf("%w: rule %q: age %d: write 0 to %d for a debt, or else 0", ErrCharges, c.Rule, c.Age, MaxTime)
		case c.Debt && (c.Reserve > 0 || c.Alone):
			return fmt.Errorf("%w: rule %q: a debt is taken always: leave out Reserve and Alone", ErrCharges, c.Rule)
		}
		if c.Reserve > 0 && (c.Quota.Algorithm == Distinct || c.Quota.Bars()) {
			return fmt.Errorf("%w: rule %q: %v leaves no reserve: leave out Reserve, or write another algorithm",
				ErrCharges, c.Rule, c.Quota.Algorithm)
		}
		for j := range i {
			if charges[j].Rule == c.Rule {
				return fmt.Errorf("%w: rule %q is charged twice", ErrCharges, c.Rule)
			}
		}
	}
	return nil
}

// ValidateLeases returns an error if the leases of charges cannot be renewed or
// released: none or too many of them, one that [ValidateCharges] does not take, that
// has no leases, or that has no id. Every store calls it first.
func ValidateLeases(charges []Charge) error {
	if len(charges) == 0 || len(charges) > MaxLeaseCharges {
		return fmt.Errorf("%w: %d leases: a call renews or releases 1 to %d", ErrCharges, len(charges), MaxLeaseCharges)
	}
	for i := range charges {
		if err := ValidateCharges(charges[i : i+1]); err != nil {
			return err
		}
		switch c := &charges[i]; {
		case !c.Quota.Leases():
			return fmt.Errorf("%w: rule %q: algorithm %v has no leases: leave it out", ErrCharges, c.Rule, c.Quota.Algorithm)
		case c.ID == 0:
			return fmt.Errorf("%w: rule %q: a lease without an id: write the one that it was taken with", ErrCharges, c.Rule)
		}
	}
	return nil
}
