package redisstore

import (
	"context"
	"errors"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Renew implements [core.Store].
func (s *Store) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	return s.touch(ctx, charges, true)
}

// Release implements [core.Store].
func (s *Store) Release(ctx context.Context, charges []core.Charge) error {
	_, err := s.touch(ctx, charges, false)
	return err
}

// touch renews or releases leases, in one call for each slot.
func (s *Store) touch(ctx context.Context, charges []core.Charge, renew bool) ([]bool, error) {
	if err := core.ValidateLeases(charges); err != nil {
		return nil, err
	}
	groups := s.split(charges)
	for i := range groups {
		s.hasher.replace(groups[i].charges)
	}
	if len(groups) == 1 {
		return groups[0].leases(ctx, groups[0].charges, renew)
	}
	held := make([]bool, len(charges))
	err := each(groups, func(_ int, g *group) error {
		mine, err := g.leases(ctx, g.charges, renew)
		for j := range mine {
			held[g.at[j]] = mine[j]
		}
		return err
	})
	return held, err
}

// Release releases leases of one slot in one call. The charges are copies.
func (p *part) Release(ctx context.Context, charges []core.Charge) error {
	p.store.hasher.replace(charges)
	_, err := p.leases(ctx, charges, false)
	return err
}

// leases renews or releases leases of one slot, with hashed keys, in one call.
func (p *part) leases(ctx context.Context, charges []core.Charge, renew bool) ([]bool, error) {
	s := p.store
	keys, args, at := lua.EncodeLeases(p.prefix, s.now(), s.grace, renew, charges)
	reply, err := s.run(ctx, &invocation{script: lua.LeaseScript(), keys: keys, args: args})
	if err != nil {
		return nil, err
	}
	held, err := lua.DecodeLeases(reply, at, p.prefix, charges)
	if !errors.Is(err, lua.ErrValue) {
		return held, err
	}
	script, args := lua.TalliedLeases(p.prefix, keys, args, charges) // keys that several algorithms charge, maybe
	if reply, err = s.run(ctx, &invocation{script: script, keys: keys, args: args}); err != nil {
		return held, err
	}
	return lua.DecodeLeases(reply, at, p.prefix, charges)
}
