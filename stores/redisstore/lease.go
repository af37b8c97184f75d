package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Renew implements [core.Store].
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	return s.touch(ctx, policy, charges, true)
}

// Release implements [core.Store].
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	_, err := s.touch(ctx, policy, charges, false)
	return err
}

// touch renews or releases leases, in one call for each part.
func (s *Store) touch(ctx context.Context, policy string, charges []core.Charge, renew bool) ([]bool, error) {
	if err := core.ValidateLeases(charges); err != nil {
		return nil, err
	}
	if s.parts == nil {
		return s.leases(ctx, policy, charges, renew)
	}
	held := make([]bool, len(charges))
	err := each(s.split(charges), func(_ int, g *group) error {
		mine, err := g.leases(ctx, policy, g.charges, renew)
		for j := range mine {
			held[g.at[j]] = mine[j]
		}
		return err
	})
	return held, err
}

// Release releases leases of one part in one call.
func (p *part) Release(ctx context.Context, policy string, charges []core.Charge) error {
	_, err := p.leases(ctx, policy, charges, false)
	return err
}

// leases renews or releases leases of one part in one call.
func (p *part) leases(ctx context.Context, policy string, charges []core.Charge, renew bool) ([]bool, error) {
	s := p.store
	charges = s.hasher.charges(policy, charges)
	keys, args, at := lua.EncodeLeases(p.prefix, policy, s.now(), s.grace, renew, charges)
	reply, err := s.run(ctx, &invocation{script: lua.LeaseScript(), keys: keys, args: args})
	if err != nil {
		return nil, err
	}
	return lua.DecodeLeases(reply, at, p.prefix, policy, charges)
}
