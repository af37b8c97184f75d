package memstore

import (
	"cmp"
	"context"

	"github.com/routelimit/limit/core"
)

// Renew implements [core.Store]. Its errors are those of [core.ValidateLeases]
// and that of a context that was done before the call.
func (s *Store) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	held := make([]bool, len(charges))
	err := s.leases(ctx, charges, func(i int, leases core.State, now int64) bool {
		renewed := leases.Renew(&charges[i].Quota, now, charges[i].ID)
		held[i] = held[i] || renewed
		return renewed
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Release implements [core.Store]. Its errors are those of Renew.
func (s *Store) Release(ctx context.Context, charges []core.Charge) error {
	return s.leases(ctx, charges, func(i int, leases core.State, now int64) bool {
		leases.Release(&charges[i].Quota, now, charges[i].ID)
		return false
	})
}

// leases calls f with the leases of the key of each charge, under the lock of its
// shard. F reports whether it has renewed a lease. The charges do not depend on
// each other, so each is locked alone.
func (s *Store) leases(ctx context.Context, charges []core.Charge, f func(i int, leases core.State, now int64) bool) error {
	if err := cmp.Or(core.ValidateLeases(charges), ctx.Err()); err != nil {
		return err
	}
	for i := range charges {
		s.leasesOf(&charges[i], func(leases core.State, now int64) bool { return f(i, leases, now) })
	}
	return nil
}

func (s *Store) leasesOf(c *core.Charge, f func(leases core.State, now int64) bool) {
	var keys [1]target // on the stack
	s.place(&keys[0], c)
	var o order
	now := s.lock(keys[:], &o)
	defer s.unlock(keys[:], &o)
	s.leasesAt(&keys[0], now, func(leases core.State) bool { return f(leases, now) })
}

// leasesAt is leases for one key, under the lock of its shard.
func (s *Store) leasesAt(k *target, now int64, f func(leases core.State) bool) {
	shard := &s.shards[k.shard]
	// A lease may be held in an overflow quota, and if the key has an entry, in both.
	own, shared := s.turned(k), s.findOverflow(shard, k.charge)
	if own != nil {
		f(own.state())
		own.prolong()
	}
	if shared == nil {
		return
	}
	renewed := f(shared.state())
	shared.prolong()
	if renewed && shared.sharedUntil > now { // the lease counts for longer
		shared.sharedUntil = shared.expires
		shard.sharedUntil = max(shard.sharedUntil, shared.sharedUntil)
		if own != nil {
			own.sharedUntil = shared.sharedUntil
		}
	}
}
