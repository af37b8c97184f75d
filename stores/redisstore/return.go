package redisstore

import (
	"cmp"
	"context"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Return implements [core.Store]. Returns of one policy that arrive while a call is in
// flight go together in the next call. Each is sent once. If ctx ends while it is queued,
// nothing is returned; if it ends during the call, the outcome is unknown.
//
// A return to a bucket is recorded in a second key of up to 185 bytes, which lives until a
// full burst has refilled.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if err := cmp.Or(core.ValidateReturns(returns), ctx.Err()); err != nil {
		return nil, err
	}
	if s.parts == nil && !s.slots {
		// A timer of package prefetch gives back too: there a panic of a hook would end the program.
		var results []core.Returned
		err := guarded(func() (err error) {
			results, err = s.part.Return(ctx, returns)
			return err
		})
		return results, err
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

// resetMemory is for how long a reset cancels debts of processes that have not reached Redis since.
const resetMemory = 24 * time.Hour

// Reset implements [core.Store]. It leaves a mark of 8 bytes at each key for a day.
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	if err := core.ValidateNames(charges); err != nil {
		return err
	}
	return each(s.split(charges), func(_ int, g *group) error {
		var keys []string
		s.hasher.replace(g.charges)
		for i := range g.charges {
			c := &g.charges[i]
			hash, ends := lua.HoldKeys(g.prefix, c)
			keys = append(keys, lua.Key(g.prefix, c), lua.ReturnedKey(g.prefix, c), hash, ends, lua.MarkKey(g.prefix, c))
		}
		_, err := s.run(ctx, &invocation{script: lua.ResetScript(), keys: keys, args: []any{s.now(), resetMemory.Milliseconds()}})
		return err
	})
}

// Lost returns how many µs ago each key of charges was found to have lost all its units; -1 if
// it was not, and -2 if it was reset instead. The caller knows of units there: a key that has
// no state, and was not reset, is found now. If the caller knows that the keys had no state at a
// time, by the clock of their server, empty is that; otherwise it is 0.
func (s *Store) Lost(ctx context.Context, charges []core.Charge, empty int64) ([]int64, error) {
	groups := s.split(charges)
	all := make([]int64, len(charges))
	err := each(groups, func(_ int, g *group) error {
		c := &invocation{script: lua.LostScript(), args: []any{s.now(), empty}}
		s.hasher.replace(g.charges)
		for i := range g.charges {
			c.keys = append(c.keys, lua.Key(g.prefix, &g.charges[i]), lua.MarkKey(g.prefix, &g.charges[i]))
			c.args = append(c.args, g.charges[i].Quota.Span()/1000+1)
		}
		ages, err := s.run(ctx, c)
		if err == nil && len(ages) != len(g.at) {
			err = errWrongReply
		}
		for i, age := range ages {
			all[g.at[i]] = age
		}
		return err
	})
	return all, err
}
