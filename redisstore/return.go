package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Return implements [core.Store] by one call of one script, which is sent once,
// as those of Take are; if the store spreads, by one for each part. A ctx that
// ends during the call leaves the outcome unknown.
//
// Of the two buckets it remembers what was given back in a second key, of 141
// bytes, for as long as a whole burst takes to come back.
func (s *Store) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.parts == nil {
		return s.giveBack(ctx, policy, returns)
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
		units, err := g.giveBack(ctx, policy, mine)
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

// giveBack gives back to keys of one part.
func (p *part) giveBack(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	s := p.store
	call := lua.NewReturns(p.prefix, policy, s.now(), s.grace, s.hidden.hiddenReturns(policy, returns))
	reply, err := s.run(ctx, call.Script, call.Keys, call.Args)
	if err != nil {
		return nil, err
	}
	return call.Decode(reply)
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	p := s.partOf(key)
	key = s.hidden.of(policy, rule, key)
	keys := []string{lua.Key(p.prefix, policy, rule, key), lua.ReturnedKey(p.prefix, policy, rule, key)}
	_, err := s.run(ctx, lua.ResetScript(), keys, nil)
	return err
}
