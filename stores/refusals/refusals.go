// Package refusals is a [core.Store] around another one that answers from memory
// for clients whose quota is known to be used up.
package refusals

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/routelimit/limit/core"
)

// longest is how long an outcome is remembered at most, in µs.
const longest = 1_000_000

// A Store remembers what another store last said about each key, and refuses
// from memory while one of the keys of a request has no quota left. It is safe
// for concurrent use, starts no goroutine and needs no closing.
//
// A key with nothing left admits nothing before its RetryAfter has passed. Until
// then, and for at most a second, requests with that key are refused without a
// call to the store, with the mode [core.ModeRemembered].
//
// Such a refusal combines the latest outcomes of all keys of the request. So its
// RetryAfter includes what this process has seen other requests take: a client
// that waits for it is admitted if no other request comes. The exceptions:
//
//   - What other processes took is known only from the last answer about the key,
//     which is at most a second old. If they use up another rule of the request
//     in that second, the RetryAfter is too short by the wait of that rule.
//   - The rules that do not refuse may have refilled since: their Remaining is a
//     lower bound.
//   - Quota that is given back, by a Return, a Reset or a deleted key, is seen at
//     once by the process that gave it back, and within a second by others. Until
//     then they refuse what the store would admit.
//
// A request goes to the store in these cases: one of its charges decides alone, and so
// must be counted; one of its keys is unknown or may have refilled; or the charge of a
// key with nothing left has a cost above 1, has a reserve, is under [core.Distinct],
// where it depends on the value, or under [core.Concurrency], whose slots are freed at
// any time. While a [core.Ban] of the request bars none of its keys, each refusal is a
// strike, which the store counts; a barred key is refused from memory. The memory holds
// [MaxKeys] keys. Refusing from it takes no lock and allocates nothing.
type Store struct {
	store core.Store
	now   func() int64 // µs, of a clock that never steps back
	seed  maphash.Seed
	keys  table
}

var _ core.Store = (*Store)(nil)

// New returns a store that remembers the refusals of another one. Put a guard
// between the two, as [github.com/routelimit/limit.New] does: a guard around
// this one would take remembered refusals for answers of the store.
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

// Check checks the wrapped store: see [core.Check].
func (s *Store) Check(ctx context.Context) error { return core.Check(ctx, s.store) }

// Unavailable reports whether the wrapped store is unavailable: see [core.Unavailable].
func (s *Store) Unavailable() bool { return core.Unavailable(s.store) }

// Blocked returns what the wrapped store does: see [core.Blocked].
func (s *Store) Blocked() int64 { return core.Blocked(s.store) }

// Take implements [core.Store].
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	if len(charges) > core.MaxCharges {
		return s.store.Take(ctx, policy, charges) // which returns an error
	}
	var hashes [core.MaxCharges]uint64
	ofPolicy := maphash.String(s.seed, policy)
	for i := range charges {
		hashes[i] = s.hash(ofPolicy, charges[i].Rule, charges[i].Key)
	}
	asked := s.now()
	if d, ok := s.remembered(policy, charges, &hashes, asked); ok {
		return d, nil
	}
	d, err := s.store.Take(ctx, policy, charges)
	answered := s.now()
	exact := err == nil && d.Mode == core.ModeExact
	for i := range charges {
		c := &charges[i]
		set := s.keys.set(hashes[i])
		if !exact {
			set.forget(hashes[i], policy, c, answered) // the store did not decide, or it is unknown what was taken
			continue
		}
		o := outcome{asked: asked, answered: answered, at: d.TimeOf(i)}
		if o.read(c, d.Outcomes()[i]) {
			set.store(hashes[i], policy, c, o)
		} else if !set.agrees(hashes[i], policy, c, o.remaining) {
			set.forget(hashes[i], policy, c, answered)
		}
	}
	return d, err
}

// remembered returns a refusal that follows from the outcomes in memory, if there
// is one.
func (s *Store) remembered(
	policy string, charges []core.Charge, hashes *[core.MaxCharges]uint64, now int64,
) (d core.Decision, ok bool) {
	var found [core.MaxCharges]*key
	refused, barred, strikes := false, false, false
	for i := range charges {
		c := &charges[i]
		if c.Alone {
			return d, false
		}
		o, k := s.keys.seen(hashes[i]).load(hashes[i], policy, c, now)
		if found[i] = k; k == nil {
			return d, false
		}
		if i == 0 {
			d = core.NewDecision(0, len(charges))
		}
		to := &d.Outcomes()[i]
		fits, ok := o.write(c, now, to)
		if !ok {
			return d, false
		}
		refused = refused || !fits
		if c.Quota.Bars() {
			barred, strikes = barred || !fits, strikes || fits
		}
		d.At = max(d.At, o.at+now-o.answered)
	}
	if strikes && !barred { // the store must count the refusal
		return d, false
	}
	d.Mode = core.ModeRemembered
	if refused {
		for _, k := range found[:len(charges)] {
			k.mark()
		}
	}
	return d, refused
}

// forget drops what is known of a key, and what calls that are under way will say.
func (s *Store) forget(policy, rule, key string) {
	hash := s.hash(maphash.String(s.seed, policy), rule, key)
	s.keys.set(hash).forget(hash, policy, &core.Charge{Rule: rule, Key: key}, s.now()+1)
}

func (s *Store) hash(ofPolicy uint64, rule, key string) uint64 {
	return mix(mix(ofPolicy, maphash.String(s.seed, rule)), maphash.String(s.seed, key))
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
	defer func() { // also after an error: the units may have been given back
		for i := range returns {
			s.forget(policy, returns[i].Rule, returns[i].Key)
		}
	}()
	return s.store.Return(ctx, policy, returns)
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, policy, rule, key string) error {
	defer s.forget(policy, rule, key)
	return s.store.Reset(ctx, policy, rule, key)
}
