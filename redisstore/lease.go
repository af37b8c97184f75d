package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Renew implements [core.Store].
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	return s.leases(ctx, policy, charges, true)
}

// Release implements [core.Store].
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	_, err := s.leases(ctx, policy, charges, false)
	return err
}

// leases renews or releases leases in one call.
func (s *Store) leases(ctx context.Context, policy string, charges []core.Charge, renew bool) ([]bool, error) {
	if err := core.ValidateLeases(charges); err != nil {
		return nil, err
	}
	charges = s.hidden.hidden(policy, charges)
	keys, args := lua.EncodeLeases(s.prefix, policy, s.now(), s.grace, renew, charges)
	reply, err := s.run(ctx, lua.LeaseScript(), keys, args)
	if err != nil {
		return nil, err
	}
	return lua.DecodeLeases(reply, s.prefix, policy, charges)
}
