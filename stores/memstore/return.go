package memstore

import (
	"cmp"
	"context"
	"strings"
	"unique"

	"github.com/routelimit/limit/core"
)

// Return implements [core.Store]. Its errors are those of
// [core.ValidateReturns] and that of a context that was done before the call.
// After either, nothing was returned. A key that shares an overflow quota gets
// nothing back: the units of the keys there cannot be told apart.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if err := cmp.Or(core.ValidateReturns(returns), ctx.Err()); err != nil {
		return nil, err
	}
	keys, order, now := s.locked(len(returns), func(i int) *core.Charge { return &returns[i].Charge })
	defer s.unlock(keys, &order)
	results := make([]core.Returned, len(returns))
	for i := range returns {
		s.find(keys[i : i+1]) // an earlier return may have replaced it
		results[i].Units = s.giveBack(&keys[i], &returns[i], now)
	}
	for i := range returns {
		s.find(keys[i : i+1])
		results[i].Outcome = s.look(&keys[i], now)
	}
	return results, nil
}

// giveBack gives units back to the entry of a key.
func (s *Store) giveBack(k *target, r *core.Return, now int64) (units int64) {
	if k.entry == nil {
		return 0
	}
	units = s.turned(k).state().Return(r, now)
	if shared := s.sharedOf(k, now); shared != nil {
		shared.state().Return(r, now)
		shared.prolong()
	}
	k.entry.prolong()
	return units
}

// look returns the outcome of a charge of cost 0 on a key.
func (s *Store) look(k *target, now int64) core.Outcome {
	s.turned(k)
	shared := s.sharedOf(k, now)
	var state core.State
	switch {
	case k.entry != nil && shared != nil:
		state = &both{own: k.entry.state(), shared: shared}
	case k.entry != nil:
		state = k.entry.state()
	case shared != nil:
		state = shared.state()
	default:
		state = core.NewState(k.charge.Quota.Algorithm)
	}
	return core.Look(now, *k.charge, state)
}

// sharedOf returns the overflow quota that counts for a key, or nil.
func (s *Store) sharedOf(k *target, now int64) *entry {
	if e := k.entry; e != nil && (e.sharedUntil <= now || e.kind == copied) {
		return nil
	}
	shared := s.findOverflow(&s.shards[k.shard], k.charge)
	if shared != nil && k.entry == nil && shared.sharedUntil <= now {
		return nil
	}
	return shared
}

// Reset implements [core.Store]. Its errors are those of [core.ValidateNames] and that
// of a context that was done before the call. Reset does not change a key that shares an
// overflow quota, or recently did: the units there may be those of other keys.
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	if err := cmp.Or(core.ValidateNames(charges), ctx.Err()); err != nil {
		return err
	}
	for i := range charges {
		var k target
		s.place(&k, &charges[i])
		shard := &s.shards[k.shard]
		now := s.now()
		shard.mu.Lock()
		shard.keys.remove(k.hash, k.charge, max(now, shard.last))
		shard.held.remove(keyOfRule{unique.Make(ruleOf(k.charge)), k.charge.Key})
		shard.mu.Unlock()
	}
	return nil
}

// remove drops the entries of a key of a rule, one for each algorithm that it had.
func (t *table) remove(hash uint32, c *core.Charge, now int64) {
	if t.len == 0 {
		return
	}
	for at := t.bucket(hash); *at != nil; {
		e := *at
		if e.hash != hash || e.key() != c.Key || e.sharedUntil > now || e.rule.Value() != ruleOf(c) {
			at = &e.next
			continue
		}
		*at = e.next
		t.len--
	}
}

// Keys returns the keys of the rule of c that are partly used, in no order.
func (s *Store) Keys(c *core.Charge) (keys []string) {
	of, now := unique.Make(ruleOf(c)), s.now()
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		for _, e := range shard.keys.buckets {
			for ; e != nil; e = e.next {
				if e.rule == of && e.expires > now {
					keys = append(keys, strings.Clone(e.key()))
				}
			}
		}
		shard.mu.Unlock()
	}
	return keys
}
