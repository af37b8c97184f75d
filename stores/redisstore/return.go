package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Return implements [core.Store]. Returns of one policy that arrive while a call is in
// flight go together in the next call. Each is sent once. If ctx ends while it is queued,
// nothing is returned; if it ends during the call, the outcome is unknown.
//
// A return to a bucket is recorded in a second key of 141 bytes, which lives until a
// full burst has refilled.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	charges := make([]core.Charge, len(returns))
	for i := range returns {
		charges[i] = returns[i].Charge
	}
	groups := s.split(charges)
	results := make([]core.Returned, len(returns))
	err := each(groups, func(_ int, g *group) error {
		mine := make([]core.Return, len(g.at))
		for j, i := range g.at {
			mine[j] = returns[i]
		}
		some, err := g.Return(ctx, mine)
		for j := range some {
			results[g.at[j]] = some[j]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Return returns units to keys of one slot.
func (p *part) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	return p.returner(returns[0].Policy).giveBack(ctx, returns)
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	if err := core.ValidateNames(charges); err != nil {
		return err
	}
	return each(s.split(charges), func(_ int, g *group) error {
		var keys []string
		s.hasher.replace(g.charges)
		for i := range g.charges {
			keys = append(keys, lua.Key(g.prefix, &g.charges[i]), lua.ReturnedKey(g.prefix, &g.charges[i]))
		}
		_, err := s.run(ctx, &invocation{script: lua.ResetScript(), keys: keys})
		return err
	})
}
