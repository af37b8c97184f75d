package core

import (
	"errors"
	"fmt"
)

// ErrCharges is wrapped by the errors about calls that no store takes.
var ErrCharges = errors.New("invalid charges")

// ValidateAsks returns an error if asks cannot be decided in one call: none of them,
// one that [ValidateCharges] does not take, too many charges, or two charges on one
// quota with different quotas. Every store calls it first.
func ValidateAsks(asks []Ask) error {
	if len(asks) == 1 {
		return ValidateCharges(asks[0].Charges)
	}
	if len(asks) == 0 {
		return fmt.Errorf("%w: no ask: write at least one", ErrCharges)
	}
	n := 0
	for i := range asks {
		if err := ValidateCharges(asks[i].Charges); err != nil {
			return err
		}
		n += len(asks[i].Charges)
		if asks[i].Owes() != asks[0].Owes() {
			return fmt.Errorf("%w: rule %q: debts beside other charges: make two calls", ErrCharges, asks[i].Charges[0].Rule)
		}
		for j := range i {
			if c := conflict(asks[i].Charges, asks[j].Charges); c != nil {
				return fmt.Errorf("%w: rule %q: two asks charge one key under different quotas: write the same one, or a Variant",
					ErrCharges, c.Rule)
			}
		}
	}
	if n > MaxCharges {
		return fmt.Errorf("%w: %d of them: a call takes 1 to %d", ErrCharges, n, MaxCharges)
	}
	return nil
}

// conflict returns a charge whose quota another charge on the same key contradicts, or nil.
func conflict(charges, others []Charge) *Charge {
	for i := range charges {
		for j := range others {
			c, o := &charges[i], &others[j]
			if c.Key == o.Key && c.SameState(o) && c.Quota != o.Quota {
				return c
			}
		}
	}
	return nil
}

// ValidateCharges returns an error if charges cannot be decided as one: none
// or too many of them, two on one state, an invalid quota or cost.
func ValidateCharges(charges []Charge) error {
	if len(charges) == 0 || len(charges) > MaxCharges {
		return fmt.Errorf("%w: %d of them: a decision takes 1 to %d", ErrCharges, len(charges), MaxCharges)
	}
	for i := range charges {
		if err := charges[i].validate(); err != nil {
			return err
		}
		if charges[i].Debt != charges[0].Debt {
			return fmt.Errorf("%w: rule %q: debts beside other charges: make two calls", ErrCharges, charges[i].Rule)
		}
		for j := range i {
			if charges[i].SameState(&charges[j]) {
				return fmt.Errorf("%w: rule %q is charged twice", ErrCharges, charges[i].Rule)
			}
		}
	}
	return nil
}

func (c *Charge) validate() error {
	if c.Reserve|c.MaxDebt|c.Age|c.Since == 0 && !c.Debt && uint64(c.Cost) <= uint64(MaxCost) && c.Quota.valid() && !c.Quota.Leases() {
		return nil // most are plain, and the other cases take a tenth of a decision in memory
	}
	switch {
	case uint64(c.Cost) > uint64(MaxCost): // or below 0
		return fmt.Errorf("%w: rule %q: cost %d: write 0 to %d", ErrCharges, c.Rule, c.Cost, MaxCost)
	case uint64(c.Reserve) > uint64(MaxCost):
		return fmt.Errorf("%w: rule %q: reserve %d: write 0 to %d", ErrCharges, c.Rule, c.Reserve, MaxCost)
	case !c.Quota.valid():
		return fmt.Errorf("%w: rule %q: %w", ErrCharges, c.Rule, c.Quota.Validate())
	case c.Quota.Leases() && c.Cost > 0 && c.ID == 0:
		return fmt.Errorf("%w: rule %q: a lease without an id: write a random one that is not 0", ErrCharges, c.Rule)
	case c.Reserve > 0 && (c.Quota.Algorithm == Distinct || c.Quota.Bars()):
		return fmt.Errorf("%w: rule %q: %v leaves no reserve: leave out Reserve, or write another algorithm",
			ErrCharges, c.Rule, c.Quota.Algorithm)
	case c.Debt && c.Reserve > 0:
		return fmt.Errorf("%w: rule %q: a debt is always taken: leave out Reserve", ErrCharges, c.Rule)
	case c.MaxDebt != 0 && (uint64(c.MaxDebt) > MaxLimit || !c.Quota.Algorithm.Owes()):
		return fmt.Errorf("%w: rule %q: a debt of at most %d: write 1 to %d for %s, and 0 for %v",
			ErrCharges, c.Rule, c.MaxDebt, int64(MaxLimit), algorithmsThat(Algorithm.Owes), c.Quota.Algorithm)
	case uint64(c.Age) > uint64(MaxTime) || uint64(c.Since) > uint64(MaxTime) || (c.Age > 0 || c.Since > 0) && !c.Debt:
		return fmt.Errorf("%w: rule %q: age %d, since %d: write 0 to %d for a debt, or else 0", ErrCharges, c.Rule, c.Age, c.Since, MaxTime)
	}
	return nil
}

// ValidateNames returns an error if charges are none or too many for a call of Reset.
// Every store calls it first.
func ValidateNames(charges []Charge) error {
	if len(charges) == 0 || len(charges) > MaxCharges {
		return fmt.Errorf("%w: %d to reset: write 1 to %d", ErrCharges, len(charges), MaxCharges)
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
		if err := charges[i].validate(); err != nil {
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
