// Package refusals is a [core.Store] around another one that answers from memory
// for clients whose quota is known to be used up.
package refusals

import (
	"context"
	"hash/maphash"
	"slices"
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
//   - The first remembered answer about a key does not know what overlapping calls of this process
//     took from it.
//   - The rules that do not refuse may have refilled since: their Remaining is a lower bound.
//   - Quota that is given back, by a Return, a Reset or a deleted key, is seen at once by the process that
//     gave it back, and within a second by others. Until then they refuse what the store would admit.
//
// A call of several asks is answered from memory only if all of them are refused from it.
// An ask is not in these cases:
//
//   - One of its keys is unknown or may have refilled.
//   - The charge of a key with nothing left has a cost above 1, has a reserve, is under [core.Distinct],
//     where it depends on the value, or under [core.Concurrency], whose slots are freed at any time.
//   - A [core.Ban] of the ask bars none of its keys: then each refusal is a strike, which
//     the store counts. A barred key is refused from memory.
//
// The memory holds [MaxKeys] keys. Keys with room get into it only with a key that has nothing left, by
// a request that charges both. Refusing from it takes no lock and allocates nothing.
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

// Condition returns that of the wrapped store: see [core.ConditionOf].
func (s *Store) Condition() core.Condition { return core.ConditionOf(s.store) }

// Account returns what the store knows that a key owes and holds: see [core.AccountOf].
func (s *Store) Account(ctx context.Context, c core.Charge) (core.Account, error) {
	return core.AccountOf(ctx, s.store, c)
}

// Take implements [core.Store].
func (s *Store) Take(ctx context.Context, asks []core.Ask) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(asks) > 0 && asks[0].Owes() {
		err := s.store.Take(ctx, asks)
		for i := range asks {
			s.forget(asks[i].Charges...) // a refusal may last longer now
		}
		return err
	}
	n := 0
	for i := range asks {
		n += len(asks[i].Charges)
	}
	if n == 0 || n > core.MaxCharges || len(asks) > n {
		return s.store.Take(ctx, asks) // which returns an error
	}
	var hashes [core.MaxCharges]uint64
	s.hashAll(asks, &hashes)
	asked := s.now()
	rest, all := hashes[:n], true
	for i := 0; i < len(asks) && all; i++ {
		all = s.remembered(&asks[i], rest, asked)
		rest = rest[len(asks[i].Charges):]
	}
	if all {
		return nil
	}
	err := s.store.Take(ctx, asks)
	rest = hashes[:n]
	for i := range asks {
		s.learn(&asks[i], rest, asked, err)
		rest = rest[len(asks[i].Charges):]
	}
	return err
}

// learn remembers what the store has decided on an ask. The first hashes are those of its charges.
// Refusals begin with a key that has nothing left, so an ask whose keys all have room only brings
// up to date what is known: most clients never use up their quota.
func (s *Store) learn(ask *core.Ask, hashes []uint64, asked int64, err error) {
	d := &ask.Decision
	exact := err == nil && d.Mode == core.ModeExact
	begins := !exact || !d.Allowed
	for i := 0; i < len(ask.Charges) && !begins; i++ {
		c := &ask.Charges[i]
		begins = d.Outcomes()[i].Remaining < max(1, c.Cost)+c.Reserve
	}
	for i := range ask.Charges {
		c, hash := &ask.Charges[i], hashes[i]
		if !begins && !s.keys.seen(hash).has(hash) {
			continue
		}
		set, answered := s.keys.set(hash), s.now()
		if !exact {
			set.forget(hash, c, answered) // the store did not decide, or it is unknown what was taken
			continue
		}
		o := outcome{asked: asked, answered: answered, at: d.TimeOf(i)}
		if o.read(c, d.Outcomes()[i]) {
			set.store(hash, c, o)
		} else if !set.agrees(hash, c, o.remaining) {
			set.forget(hash, c, answered)
		}
	}
}

// remembered reports whether a refusal of an ask follows from the outcomes in memory.
// Then it is the Decision of the ask. The first hashes are those of its charges.
func (s *Store) remembered(ask *core.Ask, hashes []uint64, now int64) bool {
	hashes = hashes[:len(ask.Charges)]
	if !slices.ContainsFunc(hashes, func(hash uint64) bool { return s.keys.seen(hash).exhausted(hash) }) {
		return false
	}
	var found [core.MaxCharges]*key
	refused, barred, strikes := false, false, false
	d := &ask.Decision
	for i, hash := range hashes {
		c := &ask.Charges[i]
		o, k := s.keys.seen(hash).load(hash, c, now)
		if found[i] = k; k == nil {
			return false
		}
		if i == 0 {
			*d = core.NewDecision(0, len(hashes))
		}
		fits, ok := o.write(c, now, &d.Outcomes()[i])
		if !ok {
			return false
		}
		refused = refused || !fits
		if c.Quota.Bars() {
			barred, strikes = barred || !fits, strikes || fits
		}
		d.At = max(d.At, o.at+now-o.answered)
	}
	if !refused || strikes && !barred { // the store must count the strike
		return false
	}
	d.Mode = core.ModeRemembered
	for _, k := range found[:len(hashes)] {
		k.mark()
	}
	return true
}

// forget drops what is known of the keys of charges, and what calls that are under way will say.
func (s *Store) forget(charges ...core.Charge) {
	for i := range charges {
		hash := s.hashOf(&charges[i])
		s.keys.set(hash).forget(hash, &charges[i], s.now()+1)
	}
}

// hashAll hashes the keys of all charges. Most are of one policy, which it hashes once.
func (s *Store) hashAll(asks []core.Ask, hashes *[core.MaxCharges]uint64) {
	n, policy, ofPolicy := 0, "", maphash.String(s.seed, "")
	for i := range asks {
		for j := range asks[i].Charges {
			c := &asks[i].Charges[j]
			if c.Policy != policy {
				policy, ofPolicy = c.Policy, maphash.String(s.seed, c.Policy)
			}
			hashes[n] = s.hash(ofPolicy, c)
			n++
		}
	}
}

func (s *Store) hashOf(c *core.Charge) uint64 { return s.hash(maphash.String(s.seed, c.Policy), c) }

// hash hashes the names of a charge, each by itself: that is faster than all at once.
func (s *Store) hash(ofPolicy uint64, c *core.Charge) uint64 {
	hash := ofPolicy + 3*maphash.String(s.seed, c.Rule) + 5*maphash.String(s.seed, c.Key)
	if c.Variant != "" {
		hash += 7 * maphash.String(s.seed, c.Variant)
	}
	return hash
}

// Renew implements [core.Store].
func (s *Store) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	return s.store.Renew(ctx, charges)
}

// Release implements [core.Store].
func (s *Store) Release(ctx context.Context, charges []core.Charge) error {
	return s.store.Release(ctx, charges)
}

// Return implements [core.Store]. What is known of the keys is what they have afterwards, so that a
// refusal that gives units back to a shared key does not have its other clients ask the store
// again.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	asked := s.now()
	results, err := s.store.Return(ctx, returns)
	answered := s.now()
	for i := range returns {
		c := &returns[i].Charge
		hash := s.hashOf(c)
		o := outcome{asked: asked, answered: answered}
		if err == nil && returns[i].Mode == core.ModeExact && o.read(c, results[i].Outcome) {
			s.keys.set(hash).giveBack(hash, c, o)
		} else { // after an error, the units may have been given back
			s.forget(*c)
		}
	}
	return results, err
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	defer s.forget(charges...)
	return s.store.Reset(ctx, charges)
}

// Holds implements [core.Holder].
func (s *Store) Holds(charges []core.Charge) bool {
	h := core.HolderOf(s.store)
	return h != nil && h.Holds(charges)
}

// Hold implements [core.Holder]. It always asks the store, which may know the hold.
func (s *Store) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	err := core.HolderOf(s.store).Hold(ctx, ask, h)
	s.forget(ask.Charges...)
	return err
}

// Settle implements [core.Holder].
func (s *Store) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	done, err := core.HolderOf(s.store).Settle(ctx, list)
	for i := range list {
		s.forget(list[i].Charge)
	}
	return done, err
}

// Extend implements [core.Holder].
func (s *Store) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	return core.HolderOf(s.store).Extend(ctx, list)
}
