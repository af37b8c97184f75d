package memstore

import (
	"context"

	"github.com/routelimit/limit/core"
)

// Return implements [core.Store]. Its errors are those of
// [core.ValidateReturns] and that of a context that was done before the call.
// After either, nothing was returned. A key that shares an overflow quota gets
// nothing back: the units of the keys there cannot be told apart.
func (s *Store) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	keys, charges := make([]target, len(returns)), make([]core.Charge, len(returns))
	for i := range returns {
		charges[i] = returns[i].Charge
		s.place(&keys[i], policy, &charges[i])
	}
	order := inOrder(keys)
	now := s.lock(policy, charges, keys, &order)
	defer s.unlock(keys, &order)
	given := make([]int64, len(returns))
	for i := range returns {
		e := keys[i].entry
		if e == nil {
			continue
		}
		given[i] = e.state().Return(&returns[i], now)
		e.prolong()
		if e.sharedUntil > now && e.kind != copied {
			if shared := s.findOverflow(&s.shards[keys[i].shard], policy, &returns[i].Charge); shared != nil {
				shared.state().Return(&returns[i], now)
				shared.prolong()
			}
		}
	}
	return given, nil
}

// Reset implements [core.Store]. Its only error is that of a context that was
// done before the call. Reset does not change a key that shares an overflow quota,
// or recently did: the units there may be those of other keys.
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var k target
	s.place(&k, policy, &core.Charge{Rule: rule, Key: key})
	shard := &s.shards[k.shard]
	now := s.now()
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.keys.remove(k.hash, policy, rule, key, max(now, shard.last))
	return nil
}

// remove drops the entries of a key of a rule, one for each algorithm that it had.
func (t *table) remove(hash uint32, policy, name, key string, now int64) {
	if t.len == 0 {
		return
	}
	for at := t.bucket(hash); *at != nil; {
		e := *at
		if e.hash != hash || e.key != key || e.sharedUntil > now || e.rule.Value() != (rule{policy, name}) {
			at = &e.next
			continue
		}
		*at = e.next
		t.len--
	}
}
