package guard

import (
	"context"
	"slices"

	"github.com/routelimit/limit/core"
)

// Return implements [core.Store]. Units that were admitted without the store are
// returned to the memory. Other units are returned to the store, and to the copy
// that the memory has counted. If several instances share a rate, that copy
// stays: what the store had left says nothing about it. If the store is
// unavailable, Return returns an error.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	copied := slices.Clone(returns)
	for i := range copied {
		r := &copied[i]
		r.Quota = r.Quota.Share(s.instances)
		if !local(r) {
			r.At = r.Tag // the memory has another clock
			if s.instances > 1 && r.Quota.Refills() {
				r.Cost = 0
			}
		}
	}
	own, err := s.own.Return(context.Background(), copied)
	if err != nil {
		return own, err
	}
	given, err := some(returns, func(r *core.Return) bool { return !local(r) }, func(asked []core.Return) (given []core.Returned, err error) {
		err = s.try(ctx, func() (err error) {
			given, err = s.store.Return(ctx, asked)
			return err
		})
		return given, err
	})
	if err != nil {
		return nil, err
	}
	for i := range returns {
		if local(&returns[i]) {
			given[i] = own[i]
		}
	}
	return given, nil
}

// local reports whether units were admitted without the store.
func local(r *core.Return) bool { return r.Mode >= core.ModeLocal }

// Reset implements [core.Store]. It resets the keys in the store and in the memory
// of this process. If the store is unavailable, Reset returns an error.
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	if err := s.own.Reset(ctx, charges); err != nil {
		return err
	}
	return s.try(ctx, func() error { return s.store.Reset(ctx, charges) })
}
