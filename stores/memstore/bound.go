package memstore

import (
	"context"
	"unique"

	"github.com/routelimit/limit/core"
)

// A bound has what all decisions by some rules share: it neither validates nor hashes their
// names again.
type bound struct {
	store *Store
	names []name // of the charges
}

// Bind returns a function that decides one ask as Take does, but faster: of charges like
// these, which may differ in Key, Cost and ID only. It is safe for concurrent use. Bind returns
// nil for charges that are not valid, for debts, and for leases, whose ID must be checked.
func (s *Store) Bind(charges []core.Charge) func(context.Context, *core.Ask) error {
	if core.ValidateCharges(charges) != nil {
		return nil
	}
	b := &bound{store: s, names: make([]name, len(charges))}
	for i := range charges {
		c := &charges[i]
		if c.Debt || c.Quota.Leases() {
			return nil
		}
		b.names[i] = name{ruleOf(c), unique.Make(ruleOf(c)), s.hashRule(c)}
	}
	if len(charges) > few {
		return b.takeMany
	}
	return b.takeFew
}

func (b *bound) takeFew(ctx context.Context, ask *core.Ask) error {
	var keys [few]target
	return b.take(ctx, ask, keys[:len(b.names)])
}

func (b *bound) takeMany(ctx context.Context, ask *core.Ask) error {
	var keys [core.MaxCharges]target
	return b.take(ctx, ask, keys[:len(b.names)])
}

// take decides an ask. It is given room for what it takes from.
func (b *bound) take(ctx context.Context, ask *core.Ask, keys []target) error {
	s := b.store
	for i := range keys {
		c := &ask.Charges[i]
		if uint64(c.Cost) > uint64(core.MaxCost) {
			return core.ValidateCharges(ask.Charges)
		}
		s.placeNamed(&keys[i], c, &b.names[i])
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var o order
	now := s.lock(keys, &o)
	defer s.unlock(keys, &o)
	s.take(ask, keys, now)
	return nil
}

// takeLogs is take for charges and keys of the default algorithm, if all keys have entries of
// their own: no interface call and no new entry. It reports whether that is so.
func takeLogs(ask *core.Ask, keys []target, now int64) bool {
	var all [core.MaxCharges]*core.Log
	logs := all[:len(keys)]
	for i := range keys {
		c, e := keys[i].charge, keys[i].entry
		if c.Quota.Algorithm != core.SlidingLog || c.Debt || e == nil || e.algorithm != core.SlidingLog || e.sharedUntil > now {
			return false
		}
		logs[i] = e.log()
	}
	ask.Decision.DecideLogs(now, ask.Charges, logs)
	for i := range keys {
		keys[i].entry.prolong()
	}
	return true
}
