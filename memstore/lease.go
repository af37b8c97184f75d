package memstore

import (
	"context"

	"github.com/routelimit/limit/core"
)

// Renew implements [core.Store]. Its errors are those of [core.ValidateLeases]
// and of a context that was done before the call.
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	held := make([]bool, len(charges))
	err := s.leases(ctx, policy, charges, func(i int, leases *core.Leases, now int64) {
		held[i] = leases.Renew(&charges[i].Quota, now, charges[i].Lease)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Release implements [core.Store]. Its errors are those of Renew.
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	return s.leases(ctx, policy, charges, func(i int, leases *core.Leases, now int64) {
		leases.Release(&charges[i].Quota, now, charges[i].Lease)
	})
}

// leases calls f with the leases of each charge that the store knows, under the
// lock of its shard. Each is for itself, and so locked for itself.
func (s *Store) leases(ctx context.Context, policy string, charges []core.Charge, f func(i int, leases *core.Leases, now int64)) error {
	if err := core.ValidateLeases(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range charges {
		s.leasesOf(policy, &charges[i], func(leases *core.Leases, now int64) { f(i, leases, now) })
	}
	return nil
}

func (s *Store) leasesOf(policy string, c *core.Charge, f func(leases *core.Leases, now int64)) {
	hash := s.hash(policy, c)
	now := s.now()
	shard := &s.shards[shardOf(hash, c.Key)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if s.monotonic {
		now = max(now, shard.last)
	}
	shard.last = now
	e := shard.keys.find(hash, policy, c)
	if e == nil {
		return
	}
	leases := e.state.(*core.Leases) // by entry.is
	f(leases, now)
	e.expires = max(e.expires, leases.Expires())
}
