package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// Renew implements [core.Store]. The store says which leases are held. While it
// is unavailable, or may not know what was admitted without it, the memory does:
// it renews such a lease, and must admit other requests as long as the lease
// lives. If several instances share the store, the others do not count that
// lease; then it is renewed in memory, and Renew returns an error about it.
func (s *Store) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	own, err := s.own.Renew(context.Background(), charges)
	if err != nil {
		return nil, err
	}
	s.store.renewed(charges)
	var held []bool
	err = s.try(ctx, func() (err error) {
		held, err = s.store.Renew(ctx, charges)
		return err
	})
	asked := err == nil
	if err != nil && !unavailable(ctx, err) {
		return held, err
	}
	if len(held) != len(own) {
		held = make([]bool, len(own))
	}
	now, local := s.now(), false
	for i := range held {
		switch {
		case held[i] || !own[i]:
		case !asked || s.doubtful(charges[i:i+1], now).has(0):
			held[i], local = s.instances == 1, true
			s.doubts.leased.advance(now)
		default: // it has ended
			_ = s.own.Release(context.Background(), charges[i:i+1])
		}
	}
	if local && s.instances > 1 {
		return held, fmt.Errorf("%w: a lease is held by this instance alone", core.ErrUnavailable)
	}
	return held, nil
}

// Release implements [core.Store]. If the store is unavailable, Release returns no error:
// it is repeated when the store answers again, for as long as the lease can be held there.
func (s *Store) Release(ctx context.Context, charges []core.Charge) error {
	if err := s.own.Release(context.Background(), charges); err != nil {
		return err
	}
	began, until := s.now(), s.unreleased.until.time()
	err := s.try(ctx, func() error { return s.store.Release(ctx, charges) })
	failed := err != nil && (ctx.Err() != nil || errors.Is(err, core.ErrUnavailable))
	if (failed || err == nil && began < until) && !s.unreleased.unknown(charges) {
		s.releaseLater(slices.Clone(charges), until)
	}
	if unavailable(ctx, err) {
		return nil
	}
	return err
}
