package redisstore

import (
	"context"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Return implements [core.Store] by one call of one script, which is sent once,
// as those of Take are. A ctx that ends during the call leaves the outcome
// unknown.
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
	call := lua.NewReturns(s.prefix, policy, s.now(), s.grace, s.hidden.hiddenReturns(policy, returns))
	reply, err := s.run(ctx, call.Script, call.Keys, call.Args)
	if err != nil {
		return nil, err
	}
	return call.Decode(reply)
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	key = s.hidden.of(policy, rule, key)
	keys := []string{lua.Key(s.prefix, policy, rule, key), lua.ReturnedKey(s.prefix, policy, rule, key)}
	_, err := s.run(ctx, lua.ResetScript(), keys, nil)
	return err
}
