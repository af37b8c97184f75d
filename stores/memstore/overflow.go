package memstore

import (
	"hash/maphash"

	"github.com/routelimit/limit/core"
)

// An overflow quota is an entry that keys of a rule share, because their shard
// has no room for entries of their own. No key ever gets more than its quota by
// it, for these reasons.
//
// All units that a key has taken and that still count are in its own entry or in
// its overflow quota. A key without an entry takes from the overflow quota. A key
// that gets an entry while the overflow quota is shared may have taken from it. So
// it takes from both, until the units that were there no longer count. From then
// on the entry has all of the key's units.
//
// Units of keys that have entries do not make the overflow quota shared for
// longer. So it is free a window after there is room again, however many keys
// come. Otherwise a steady stream of new keys would keep it shared forever.
//
// In a bucket or a queue, units do not expire one by one: a unit refills after the
// units that were taken before it. So an entry of a key that leaves such an
// overflow quota begins with a copy of its state, and is charged alone. A copy of
// a log would let one request use the memory of a full limit.
//
// Bans have no overflow quotas. A shared one would bar clients for the strikes of
// others, and for longer than the flood: see unkept.

const (
	// overflowRoom is how many overflow quotas a shard may have, beside s.room
	// entries of keys.
	overflowRoom = 64

	// reclaimSteps is how often a full table is swept for a new entry, as long as
	// it stays full.
	reclaimSteps = 4

	// noRoomRetry is the RetryAfter of a key for which there is not even an
	// overflow quota.
	noRoomRetry = 1_000_000
)

// locate finds what the i-th charge takes from, if its key has no entry or an
// overflow quota counts for it. It returns by which quotas the charge is decided.
func (s *Store) locate(keys []target, i int, now int64) core.Overflow {
	k := &keys[i]
	c := k.charge
	if k.entry != nil {
		return core.BothQuotas
	}
	shard := &s.shards[k.shard]
	var shared *entry
	if shard.sharedUntil > now {
		if shared = s.findOverflow(shard, c); shared != nil && shared.sharedUntil <= now {
			shared = nil
		}
	}
	switch {
	case hasRoom(&shard.keys, s.room, ofKey, keys, i, now):
		if shared == nil {
			k.entry = newEntry(c)
			return core.OwnQuota
		}
		if c.Quota.Refills() {
			k.entry = allocate(c.Quota.Algorithm, c.Key, shared.state().Clone())
			k.entry.kind = copied
		} else {
			k.entry = newEntry(c)
			k.entry.sharedUntil = shared.sharedUntil
		}
		return core.BothQuotas
	case c.Key == "" || c.Quota.Bars(): // all requests share it already; see unkept
		return core.SharedQuota
	}
	k.entry = s.findOverflow(shard, c) // it may exist although it is not shared now
	if k.entry == nil && hasRoom(&shard.overflow, overflowRoom, overflow, keys, i, now) {
		k.entry = newEntry(c)
		k.entry.kind = overflow
	}
	return core.SharedQuota
}

// hasRoom reports whether t, a table of keys or of overflow quotas in the shard of
// the i-th key, has room for one more entry beside those that the charges before
// it may add. If t is full, hasRoom first drops expired entries.
func hasRoom(t *table, most int, of kind, keys []target, i int, now int64) bool {
	for j := range keys[:i] {
		if e := keys[j].entry; e != nil && !e.has(stored) && (e.kind == overflow) == (of == overflow) && keys[j].shard == keys[i].shard {
			most--
		}
	}
	if t.len < most {
		return true
	}
	pin(keys, true)
	for step := 0; step < reclaimSteps && t.len >= most; step++ {
		t.sweep(now)
	}
	pin(keys, false)
	return t.len < most
}

// pin keeps a sweep from dropping the entries of a decision.
func pin(keys []target, on bool) {
	for i := range keys {
		if e := keys[i].entry; e != nil {
			e.flags &^= pinned
			if on {
				e.flags |= pinned
			}
		}
	}
}

// findOverflow returns the overflow quota of a charge, or nil.
func (s *Store) findOverflow(shard *shard, c *core.Charge) *entry {
	shared := overflowOf(c)
	return shard.overflow.find(&target{charge: &shared, hash: s.hashOverflow(&shared)})
}

// overflowOf returns a charge that names the overflow quota of c in its shard.
func overflowOf(c *core.Charge) core.Charge {
	return core.Charge{Policy: c.Policy, Rule: c.Rule, Variant: c.Variant, Quota: c.Quota.OverflowQuota()}
}

func (s *Store) hashOverflow(shared *core.Charge) uint32 {
	return uint32(maphash.Comparable(s.seed, struct {
		rule  rule
		quota core.Quota
	}{ruleOf(shared), shared.Quota}))
}

// takeOverflow decides an ask that overflow quotas take part in, and stores new
// entries.
func (s *Store) takeOverflow(ask *core.Ask, keys []target, states []core.State, now int64) {
	var all []*both
	for i := range keys {
		k := &keys[i]
		if k.entry == nil || k.entry.kind != ofKey || k.entry.sharedUntil <= now {
			continue
		}
		if shared := s.findOverflow(&s.shards[k.shard], k.charge); shared != nil {
			b := &both{own: k.entry.state(), shared: shared}
			states[i] = b
			all = append(all, b)
		}
	}
	d := &ask.Decision
	d.Decide(now, ask.Charges, states)
	for i := range keys {
		d.SetOverflow(i, keys[i].quotas)
	}
	for _, b := range all {
		b.shared.prolong()
	}
	for i := range keys {
		k := &keys[i]
		takes := d.Allowed && k.charge.Cost > 0
		switch {
		case k.entry == nil:
			continue
		case k.entry.kind == copied && !k.entry.has(stored) && !takes:
			k.entry = nil // its units are those of other keys
			continue
		}
		k.entry.prolong()
		switch {
		case k.entry.kind == overflow && takes:
			k.entry.sharedUntil = k.entry.expires
			shard := &s.shards[k.shard]
			shard.sharedUntil = max(shard.sharedUntil, k.entry.sharedUntil)
		case k.entry.kind == copied:
			k.entry.sharedUntil = k.entry.expires
		}
	}
	s.insertNew(now, keys)
}

// state returns the state that decides the charge.
func (k *target) state() core.State {
	if k.entry != nil {
		return k.entry.state()
	}
	return unkept{k.charge}
}

// unkept is the state of a key for which there is no memory: whatever is taken, there is
// as much room as before. A ban has not struck the key, and the other rules still refuse
// its requests. Other rules have none, and cannot know when there will be memory. It is a
// pointer alone, so that a flood of new keys allocates nothing.
type unkept struct{ charge *core.Charge }

func (u unkept) room() int64 {
	if u.charge.Quota.Bars() {
		return u.charge.Quota.Limit
	}
	return 0
}

func (unkept) Needs(c *core.Charge) int64                  { return c.Cost }
func (u unkept) Advance(*core.Quota, int64) int64          { return u.room() }
func (u unkept) Take(int64, uint64) (_, _ int64)           { return u.room(), 0 }
func (unkept) Refuse(bool) bool                            { return false }
func (unkept) Owe(*core.Quota, int64, int64, uint64, bool) {}
func (unkept) Renew(*core.Quota, int64, uint64) bool       { return false }
func (unkept) Release(*core.Quota, int64, uint64)          {}
func (u unkept) Used() int64                               { return max(0, 1-u.room()) }
func (unkept) After(int64) int64                           { return noRoomRetry }
func (unkept) Expires() int64                              { return 0 }
func (unkept) Return(*core.Return, int64) (n int64)        { return 0 }
func (u unkept) Clone() core.State                         { return u }
