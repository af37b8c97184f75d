package core

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
)

// A Holder is a [Store] that can hold what an admitted ask takes until it is settled by its
// id, by any process. A hold ends by itself unless it is extended: what a process held that
// dies comes back. Each key of an ask remembers its holds.
type Holder interface {
	// Holds reports whether the store can hold what such charges take together, or anything if
	// there are none. Their keys, costs and IDs do not matter. One that wraps another store asks that.
	Holds(charges []Charge) bool

	// Hold decides an ask as Take does, and holds what it takes, apart from charges on
	// quotas that cannot be held: see [Quota.Holds]. If a hold with that ID lives on a key
	// of the ask, it decides what [Repeated] returns, and changes no hold. If one was settled
	// of late, it takes nothing. H.Found says so.
	Hold(ctx context.Context, ask *Ask, h *Hold) error

	// Settle settles one charge each, or ends it. It may be repeated: what is settled does
	// not change. All are of charges that can be held together, with their leases, and at most
	// [MaxCharges]. After an error the outcome is unknown.
	Settle(ctx context.Context, list []Settlement) ([]Settled, error)

	// Extend begins the life of holds anew, as many as [MaxLeaseCharges] on charges that can
	// be held together, and reports which of them lived.
	Extend(ctx context.Context, list []Extension) ([]bool, error)
}

// HolderOf returns the Holder that a store is, or nil.
func HolderOf(store Store) Holder {
	if h, ok := store.(Holder); ok && h.Holds(nil) {
		return h
	}
	return nil
}

// A HoldID names a hold on a key. Other keys may have one of the same ID.
type HoldID [12]byte

// HoldIDOf returns the id for a name that a program gives, which may be long and secret. It is
// a part of its SHA-256.
func HoldIDOf(name string) (id HoldID) {
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

// A Hold is how an ask is held.
type Hold struct {
	ID   HoldID
	Life int64  // µs, MinHold to MaxHold
	Kept uint16 // bit i is set if what charge i took stays charged when the hold ends

	// Found is what the store has found: [HoldUnknown] means that it has decided the ask
	// anew, HoldLives that it was admitted before, and HoldSettled that it was settled, with
	// a Decision that says nothing. HoldRefused means that the store has decided, and holds
	// nothing, since it could not.
	Found Found
	Units [MaxCharges]int64 // what each charge has taken, if the hold lives
	Over  []Settlement      // some holds on the keys that have ended: end them
}

// A Found is what a store knows of a hold.
type Found uint8

// What a store knows of a hold on a key.
const (
	HoldUnknown Found = iota // there is none, or it was settled or ended too long ago
	HoldLives
	HoldEnded // what it held has come back, apart from what stays charged
	HoldSettled
	HoldRefused
)

// A Settlement settles what one charge took under a hold, or ends it. The Return is what would
// give back all of it, as far as the caller knows: with At 0, the store uses what it has kept.
// A hold that is settled at 0 is forgotten at once, as if it had never been. So such a settlement
// with another At than that of the hold, which began since, finds nothing.
type Settlement struct {
	Return
	Hold HoldID
	Used int64 // what it really cost; beyond what it took, MaxDebt bounds how far the key goes into debt

	Ends   bool // only if the hold has ended, it then costs what it was to keep
	Forget bool // forget the hold at once whatever it cost, since no request has its ID again

	// Leases are released in the same call, whatever becomes of the settlement: see
	// [Store].Release, and call it after an error.
	Leases []Charge
}

// Leased returns the leases of all settlements.
func Leased(list []Settlement) (leases []Charge) {
	for i := range list {
		leases = append(leases, list[i].Leases...)
	}
	return leases
}

// A Settled is what came of a [Settlement]. With HoldLives and HoldEnded, the hold is settled, or
// has ended, by this call. With HoldSettled it was before, or has been extended; then, and with
// HoldUnknown, nothing has changed.
type Settled struct {
	Found    Found
	Given    int64 // units that came back
	Taken    int64 // units that were taken in addition
	Forgiven int64 // units beyond that, for which there was no room
}

// An Extension has a hold on a key of a charge live for Life from now.
type Extension struct {
	Charge
	Hold HoldID
	Life int64
}

// Bounds on a Life, and for how long the end of a hold is remembered, in µs.
const (
	MinHold    = int64(1_000_000)
	MaxHold    = int64(24 * 3600 * 1_000_000)
	HoldMemory = int64(600 * 1_000_000)
)

// Holds reports whether charges on the quota can be held: not those of leases, which end by
// themselves, nor slots of a queue, which pass, nor strikes and values.
func (q *Quota) Holds() bool { return q.Spends() && !q.Leases() && !q.Queues() }

// Repeated returns the charges of a request whose hold lives: what is held costs nothing more.
// The others are decided anew, since a repeat may run beside the first request, or long after it.
func Repeated(charges []Charge) []Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		if charges[i].Quota.Holds() {
			charges[i].Cost = 0
		}
	}
	return charges
}

// Validate returns an error that wraps [ErrCharges] if h cannot hold the ask. Every store that
// holds calls it first.
func (h *Hold) Validate(ask *Ask) error {
	if err := ValidateCharges(ask.Charges); err != nil {
		return err
	}
	if ask.Owes() {
		return fmt.Errorf("%w: a debt cannot be held", ErrCharges)
	}
	return validLife(h.Life)
}

func validLife(life int64) error {
	if life < MinHold || life > MaxHold {
		return fmt.Errorf("%w: a hold of %d µs: write %d to %d", ErrCharges, life, MinHold, MaxHold)
	}
	return nil
}

// ValidateSettlements returns an error that wraps [ErrCharges] if list is not one for Settle.
func ValidateSettlements(list []Settlement) error {
	leases := Leased(list)
	if len(list) == 0 || len(list)+len(leases) > MaxCharges {
		return fmt.Errorf("%w: %d settlements and %d leases: write 1 to %d", ErrCharges, len(list), len(leases), MaxCharges)
	}
	if len(leases) > 0 {
		if err := ValidateLeases(leases); err != nil {
			return err
		}
	}
	for i := range list {
		s := &list[i]
		if err := s.held(); err != nil {
			return err
		}
		if uint64(s.Used) > uint64(MaxCost) {
			return fmt.Errorf("%w: rule %q: a cost of %d: write 0 to %d", ErrCharges, s.Rule, s.Used, MaxCost)
		}
		if err := s.validTimes(); err != nil {
			return err
		}
	}
	return nil
}

// ValidateExtensions returns an error that wraps [ErrCharges] if list is not one for Extend.
func ValidateExtensions(list []Extension) error {
	if len(list) == 0 || len(list) > MaxLeaseCharges {
		return fmt.Errorf("%w: %d extensions: write 1 to %d", ErrCharges, len(list), MaxLeaseCharges)
	}
	for i := range list {
		if err := list[i].held(); err != nil {
			return err
		}
		if err := validLife(list[i].Life); err != nil {
			return err
		}
	}
	return nil
}

// held returns an error if c is no charge that can be held.
func (c *Charge) held() error {
	if !c.Quota.Holds() {
		return fmt.Errorf("%w: rule %q: algorithm %v is not held: leave it out", ErrCharges, c.Rule, c.Quota.Algorithm)
	}
	return c.validate()
}

// Grow returns the debt that takes what a settlement costs beyond what it has, where there is
// room for so many units; its Cost may be 0.
func (s *Settlement) Grow(units, room int64) Charge {
	c := s.Charge
	c.Debt, c.Reserve, c.Cost = true, 0, units
	if c.MaxDebt == 0 {
		c.Cost = min(units, max(0, room))
	}
	return c
}
