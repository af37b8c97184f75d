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
func (s *Store) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	local := returns[0].Mode >= core.ModeLocal
	copied := slices.Clone(returns)
	for i := range copied {
		r := &copied[i]
		r.Quota = r.Quota.Share(s.instances)
		if !local {
			r.At = r.Tag // the memory has another clock
			if s.instances > 1 && r.Quota.Refills() {
				r.Cost = 0
			}
		}
	}
	given, err := s.own.Return(context.Background(), policy, copied)
	if err != nil || local {
		return given, err
	}
	err = s.try(ctx, func() (err error) {
		given, err = s.store.Return(ctx, policy, returns)
		return err
	})
	if err != nil {
		return nil, err
	}
	return given, nil
}

// Reset implements [core.Store]. It resets the key in the store and in the memory
// of this process. If the store is unavailable, Reset returns an error.
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	if err := s.own.Reset(ctx, policy, rule, key); err != nil {
		return err
	}
	return s.try(ctx, func() error { return s.store.Reset(ctx, policy, rule, key) })
}
