package refusals

import (
	"context"

	"github.com/routelimit/limit/core"
)

// Holds implements [core.Holder].
func (s *Store) Holds(charges []core.Charge) bool {
	h := core.HolderOf(s.store)
	return h != nil && h.Holds(charges)
}

// Hold implements [core.Holder]. It always asks the store, which may know the hold.
func (s *Store) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	err := core.HolderOf(s.store).Hold(ctx, ask, h)
	for i := range ask.Charges {
		s.forget(&ask.Charges[i])
	}
	return err
}

// Settle implements [core.Holder].
func (s *Store) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	done, err := core.HolderOf(s.store).Settle(ctx, list)
	for i := range list {
		s.forget(&list[i].Charge)
	}
	return done, err
}

// Account returns what the store knows that a key owes and holds: see [core.AccountOf].
func (s *Store) Account(ctx context.Context, c core.Charge) (core.Account, error) {
	return core.AccountOf(ctx, s.store, c)
}

// Extend implements [core.Holder].
func (s *Store) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	return core.HolderOf(s.store).Extend(ctx, list)
}
