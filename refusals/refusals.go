// Package refusals is a [core.Store] around another one that remembers what that
// has refused, so that a client that goes on regardless costs it next to nothing.
package refusals

import (
	"context"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

const (
	longest = 1_000_000 // µs that a refusal is remembered at most
	slots   = 1 << 12   // refusals that are remembered at most
	maxKeys = 1 << 10   // bytes of the keys of one
)

// A Store remembers the refusals of another one. It is safe for concurrent use,
// starts no goroutine and needs no closing.
//
// Where a rule has nothing left, nobody can be admitted before its RetryAfter has
// passed. So the same charges are refused without asking until then, for at most a
// second, with the mode [core.ModeRemembered]; what such a decision says of
// the rules that refuse is what the store would say. What it gives up:
//
//   - What comes back early, by a Return, a Reset or a deleted key, is seen at once
//     in the process that gave it back, and within the second in others.
//   - What a remembered decision says is left of rules that do not refuse is
//     as old as the refusal.
//   - Only refusals of one unit by rules with nothing left are remembered, and none
//     by [core.Concurrency], where slots come back at any time; of 4,096 at a
//     time, in memory that the clients do not choose.
type Store struct {
	store    core.Store
	now      func() int64 // µs, of a clock that never steps back
	seed     maphash.Seed
	refusals [slots]atomic.Pointer[refusal]
	returns  [slots]atomic.Uint32 // how often something came back to one of the keys with a hash
}

var _ core.Store = (*Store)(nil)

// A refusal is what the store has said. It does not change.
type refusal struct {
	policy   string
	charges  []core.Charge
	returns  []stamp // for each charge, when it was asked
	decision core.Decision
	heard    int64 // when it came
	until    int64 // it holds before that
}

// A stamp is what a counter was at.
type stamp struct {
	of *atomic.Uint32
	at uint32
}

// New returns a store that remembers the refusals of another one. A guard belongs
// between the two: around this one it would take what is remembered for answers.
// [github.com/routelimit/limit.New] puts both around a store.
func New(store core.Store) *Store {
	base := time.Now()
	return newStore(store, func() int64 { return time.Since(base).Microseconds() })
}

func newStore(store core.Store, now func() int64) *Store {
	if store == nil {
		panic("refusals: the store is nil: write refusals.New(guard.New(redisstore.New(client, nil), nil))")
	}
	return &Store{store: store, now: now, seed: maphash.MakeSeed()}
}

// Take implements [core.Store].
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	asked := s.now()
	slot := &s.refusals[s.slot(policy, charges)]
	if r := slot.Load(); r != nil && asked < r.until && r.is(policy, charges) && !r.returned() {
		return r.decision.Later(asked - r.heard), nil
	}
	var returns [core.MaxCharges]stamp
	for i := range charges[:min(len(charges), len(returns))] {
		of := s.returnsTo(policy, charges[i].Rule, charges[i].Key)
		returns[i] = stamp{of, of.Load()}
	}
	d, err := s.store.Take(ctx, policy, charges)
	if err == nil && !d.Allowed && d.Mode == core.ModeExact {
		if holds := holds(&d, charges); holds > 0 {
			slot.Store(newRefusal(policy, charges, returns[:len(charges)], &d, s.now(), asked+holds))
		}
	}
	return d, err
}

// holds returns how long after it was asked a refusal holds whatever others
// take, in µs; 0 if that cannot be told.
func holds(d *core.Decision, charges []core.Charge) int64 {
	time := int64(longest)
	for i, o := range d.Outcomes() {
		c := &charges[i]
		switch {
		case o.Fits():
		case c.Quota.Algorithm == core.Concurrency, c.Cost != 1:
			return 0
		case o.RetryAfter != core.Never:
			time = min(time, o.RetryAfter)
		}
	}
	return time
}

// newRefusal returns nil for keys that are too long to remember.
func newRefusal(policy string, charges []core.Charge, returns []stamp, d *core.Decision, heard, until int64) *refusal {
	bytes := 0
	for i := range charges {
		bytes += len(charges[i].Key)
	}
	if bytes > maxKeys {
		return nil
	}
	r := &refusal{policy: policy, decision: *d, heard: heard, until: until,
		charges: append([]core.Charge(nil), charges...), returns: append([]stamp(nil), returns...)}
	r.decision.Mode = core.ModeRemembered
	for i := range r.charges {
		c := &r.charges[i]
		c.Key = strings.Clone(c.Key) // it may be a slice of a whole request
	}
	return r
}

// is reports whether r is of the same charges.
func (r *refusal) is(policy string, charges []core.Charge) bool {
	if r.policy != policy || len(r.charges) != len(charges) {
		return false
	}
	for i := range charges {
		c, of := &charges[i], &r.charges[i]
		if c.Key != of.Key || c.Cost != of.Cost || c.Rule != of.Rule || c.Quota != of.Quota {
			return false
		}
	}
	return true
}

// returned reports whether something may have come back since r was asked for.
func (r *refusal) returned() bool {
	for _, stamp := range r.returns {
		if stamp.of.Load() != stamp.at {
			return true
		}
	}
	return false
}

func (s *Store) returnsTo(policy, rule, key string) *atomic.Uint32 {
	return &s.returns[mix(mix(maphash.String(s.seed, policy), maphash.String(s.seed, rule)), maphash.String(s.seed, key))%slots]
}

func (s *Store) slot(policy string, charges []core.Charge) uint64 {
	hash := maphash.String(s.seed, policy)
	for i := range charges {
		hash = mix(hash, maphash.String(s.seed, charges[i].Key))
	}
	return hash % slots
}

// mix is a step of FNV-1a over words.
func mix(a, b uint64) uint64 {
	a = (a ^ b) * 1099511628211
	return a ^ a>>32
}

// Renew implements [core.Store].
func (s *Store) Renew(ctx context.Context, policy string, charges []core.Charge) ([]bool, error) {
	return s.store.Renew(ctx, policy, charges)
}

// Release implements [core.Store].
func (s *Store) Release(ctx context.Context, policy string, charges []core.Charge) error {
	return s.store.Release(ctx, policy, charges)
}

// Return implements [core.Store].
func (s *Store) Return(ctx context.Context, policy string, returns []core.Return) ([]int64, error) {
	defer func() { // also if it fails: something may have come back
		for i := range returns {
			s.returnsTo(policy, returns[i].Rule, returns[i].Key).Add(1)
		}
	}()
	return s.store.Return(ctx, policy, returns)
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	defer s.returnsTo(policy, rule, key).Add(1)
	return s.store.Reset(ctx, policy, rule, key)
}
