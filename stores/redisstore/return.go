package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Return implements [core.Store] by one call of one script, or one for each part
// if the store spreads. Each is sent once. If ctx ends during the call, the outcome
// is unknown.
//
// A return to a bucket is recorded in a second key of 141 bytes, which lives until a
// full burst has refilled.
func (s *Store) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.parts == nil {
		return s.part.Return(ctx, policy, returns)
	}
	charges := make([]core.Charge, len(returns))
	for i := range returns {
		charges[i] = returns[i].Charge
	}
	given := make([]int64, len(returns))
	err := each(s.split(charges), func(_ int, g *group) error {
		mine := make([]core.Return, len(g.at))
		for j, i := range g.at {
			mine[j] = returns[i]
		}
		units, err := g.Return(ctx, policy, mine)
		for j := range units {
			given[g.at[j]] = units[j]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return given, nil
}

// Return returns units to keys of one part, in one call.
func (p *part) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	s := p.store
	call := lua.NewReturns(p.prefix, policy, s.now(), s.grace, s.hasher.returns(policy, returns))
	reply, err := s.run(ctx, &invocation{script: call.Script, keys: call.Keys, args: call.Args})
	if err != nil {
		return nil, err
	}
	return call.Decode(reply)
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	p := s.partOf(key)
	key = s.hasher.hash(policy, rule, key)
	keys := []string{lua.Key(p.prefix, policy, rule, key), lua.ReturnedKey(p.prefix, policy, rule, key)}
	_, err := s.run(ctx, &invocation{script: lua.ResetScript(), keys: keys})
	return err
}
