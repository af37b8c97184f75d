package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Renew implements [core.Store]. The client may repeat the call, which does no
// harm.
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	return s.leases(ctx, policy, charges, true)
}

// Release implements [core.Store]. The client may repeat the call, which does
// no harm.
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	_, err := s.leases(ctx, policy, charges, false)
	return err
}

// leases renews or releases leases in one call.
func (s *Store) leases(ctx context.Context, policy string, charges []core.Charge, renew bool) ([]bool, error) {
	if err := core.ValidateLeases(charges); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys, args := lua.EncodeLeases(s.prefix, policy, s.now(), s.grace, renew, charges)
	script := lua.LeaseScript()
	reply, err := s.client.EvalSha(ctx, script.SHA, keys, args...).Int64Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.client.Eval(ctx, script.Text, keys, args...).Int64Slice()
	}
	if err != nil {
		return nil, err
	}
	return lua.DecodeLeases(reply, s.prefix, policy, charges)
}
