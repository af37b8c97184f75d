package guard

import (
	"context"
	"slices"

	"github.com/routelimit/limit/core"
)

// Return implements [core.Store]. Units that were admitted without the store are returned to the
// memory, and to the store if it has been charged for them since. Other units are returned to the
// store, and to the copy that the memory has counted. If several instances share a rate, that copy
// stays: what the store had left says nothing about it. If the store is unavailable, Return returns
// an error.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	given, err := s.own.Return(context.Background(), s.copied(returns))
	if err != nil {
		return nil, err
	}
	var asked []core.Return
	var at []int
	for i := range returns {
		r := &returns[i]
		if local(r) {
			back := *r // only what counted in memory still does in the store
			back.Cost = min(r.Cost, given[i].Units)
			for _, paid := range s.debts.forgive(back) {
				asked, at = append(asked, paid), append(at, i)
			}
			continue
		}
		given[i] = core.Returned{}
		if r.Mode != core.ModeOverflow || r.Key == "" { // others may have taken from an overflow quota
			asked, at = append(asked, *r), append(at, i)
		}
	}
	if asked == nil {
		return given, nil
	}
	err = s.try(ctx, func() error {
		for some := range slices.Chunk(asked, core.MaxCharges) {
			back, err := s.store.Return(ctx, some)
			if err != nil {
				return err
			}
			for i := range back {
				if !local(&returns[at[i]]) {
					given[at[i]] = back[i]
				}
			}
			at = at[len(some):]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return given, nil
}

// copied returns the returns of the copies that the memory counts.
func (s *Store) copied(returns []core.Return) []core.Return {
	returns = slices.Clone(returns)
	for i := range returns {
		r := &returns[i]
		r.Quota = r.Quota.Share(s.instances)
		if !local(r) {
			r.At = r.Tag // the memory has another clock
			if s.instances > 1 && r.Quota.Refills() {
				r.Cost = 0
			}
		}
	}
	return returns
}

// local reports whether units were admitted without the store.
func local(r *core.Return) bool { return r.Mode >= core.ModeLocal }

// Reset implements [core.Store]. It resets the keys in the store and in the memory of this process,
// which owes nothing for them any more. If the store is unavailable, Reset returns an error.
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	if err := core.ValidateNames(charges); err != nil {
		return err
	}
	s.debts.payments.Lock()
	defer s.debts.payments.Unlock()
	s.debts.cancel(charges)
	if err := s.own.Reset(ctx, charges); err != nil {
		return err
	}
	return s.try(ctx, func() error { return s.store.Reset(ctx, charges) })
}
