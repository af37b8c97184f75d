package memstore

import (
	"context"

	"github.com/routelimit/limit/core"
)

// Renew implements [core.Store]. Its errors are those of [core.ValidateLeases]
// and of a context that was done before the call.
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	held := make([]bool, len(charges))
	err := s.leases(ctx, policy, charges, func(i int, leases core.State, now int64) bool {
		renewed := leases.Renew(&charges[i].Quota, now, charges[i].Lease)
		held[i] = held[i] || renewed
		return renewed
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Release implements [core.Store]. Its errors are those of Renew.
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	return s.leases(ctx, policy, charges, func(i int, leases core.State, now int64) bool {
		leases.Release(&charges[i].Quota, now, charges[i].Lease)
		return false
	})
}

// leases calls f with the leases of each charge that the store knows, under the
// lock of its shard. Each is for itself, and so locked for itself. F reports
// whether it has renewed one.
func (s *Store) leases(ctx context.Context, policy string, charges []core.Charge, f func(i int, leases core.State, now int64) bool) error {
	if err := core.ValidateLeases(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range charges {
		s.leasesOf(policy, &charges[i], func(leases core.State, now int64) bool { return f(i, leases, now) })
	}
	return nil
}

func (s *Store) leasesOf(policy string, c *core.Charge, f func(leases core.State, now int64) bool) {
	hash := s.hash(policy, c)
	now := s.now()
	shard := &s.shards[shardOf(hash, c.Key)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if s.monotonic {
		now = max(now, shard.last)
	}
	shard.last = now
	// It may be held in a cell, and if the key has an entry, in both.
	own, cell := shard.keys.find(hash, policy, c), s.findCell(shard, policy, c)
	if own != nil {
		f(own.state, now) // by entry.is
		own.prolong()
	}
	if cell == nil {
		return
	}
	renewed := f(cell.state, now)
	cell.prolong()
	if renewed && cell.shared > now { // what is held for want of room counts for longer
		cell.shared = cell.expires
		shard.shared = max(shard.shared, cell.shared)
		if own != nil {
			own.shared = cell.shared
		}
	}
}
