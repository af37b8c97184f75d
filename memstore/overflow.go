package memstore

import (
	"hash/maphash"

	"github.com/routelimit/limit/core"
)

// A cell is an entry that the keys of a rule share whose shard has no room for
// entries of their own.
//
// That no key ever gets more than its quota rests on this. All that a key has
// taken and that still counts is in its entry, or in its cell. It is in the
// cell while the key has no entry. A key that gets one while the cell is shared
// may have taken from it: until all that was taken for want of room when the
// entry came no longer counts, the key takes from both, so that the cell has
// all, and the entry has all from then on. What keys with entries take does not
// make the cell shared for longer. So cells come to rest a window after there
// is room, however many keys come; if the cell were just used until it is
// whole, a steady stream of new keys would keep it from ever being.
//
// A debt, that of a bucket or a queue, does not go unit by unit: what is taken
// comes back after what was taken before. So there an entry begins with a copy
// of the cell's debt, and is charged alone. (A copy of a log would let one
// request take the memory of a whole limit.)

const (
	// cellRoom is how many cells a shard may have, beside s.room entries.
	cellRoom = 64

	// reclaimSteps is how often a full table is swept for a new entry, if it
	// stays full.
	reclaimSteps = 4

	// crowdedRetry is when to come again for whom there is not even a cell.
	crowdedRetry = 1_000_000
)

// place finds what the i-th charge is taken from, if its key has no entry, or
// one for which a cell counts. It returns by which quotas the charge is decided.
func (s *Store) place(keys []found, i int, policy string, c *core.Charge, now int64) core.Overflow {
	k := &keys[i]
	if k.entry != nil {
		return core.BothQuotas
	}
	shard := &s.shards[k.shard]
	var cell *entry
	if shard.shared > now {
		if cell = s.findCell(shard, policy, c); cell != nil && cell.shared <= now {
			cell = nil
		}
	}
	switch {
	case hasRoom(&shard.keys, s.room, false, keys, i, now):
		if cell == nil {
			k.entry = newcomer(c.Quota.Algorithm)
			return core.OwnQuota
		}
		if c.Quota.Refills() {
			k.entry = &entry{state: cell.state.Clone(), algorithm: c.Quota.Algorithm, debt: true}
		} else {
			k.entry = newcomer(c.Quota.Algorithm)
			k.entry.shared = cell.shared
		}
		return core.BothQuotas
	case c.Key == "": // other keys that are empty have other quotas
		return core.SharedQuota
	}
	k.entry = s.findCell(shard, policy, c) // it may be there although it is not shared
	if k.entry == nil && hasRoom(&shard.cells, cellRoom, true, keys, i, now) {
		k.entry = newcomer(c.Quota.Algorithm)
		k.entry.cell = true
	}
	return core.SharedQuota
}

// hasRoom reports whether t, a table of entries or cells of the shard of the
// i-th key, has room for another beside those that the keys before it may bring.
// If not, it first looks for some that have expired, but for those that this
// decision has found.
func hasRoom(t *table, most int, cells bool, keys []found, i int, now int64) bool {
	for j := range keys[:i] {
		if e := keys[j].entry; e != nil && !e.known && e.cell == cells && keys[j].shard == keys[i].shard {
			most--
		}
	}
	if t.len < most {
		return true
	}
	hold(keys, true)
	for step := 0; step < reclaimSteps && t.len >= most; step++ {
		t.sweep(now)
	}
	hold(keys, false)
	return t.len < most
}

func hold(keys []found, held bool) {
	for i := range keys {
		if e := keys[i].entry; e != nil {
			e.held = held
		}
	}
}

// findCell returns the cell of a charge, or nil.
func (s *Store) findCell(shard *shard, policy string, c *core.Charge) *entry {
	cell := cellOf(c)
	return shard.cells.find(s.hashCell(policy, &cell), policy, &cell)
}

// cellOf returns a charge that names the cell of c. Rules have cells of their
// own, and so have keys of one rule whose quotas differ: a key with a short
// window would make a cell forget what counts in a longer one. A changed limit
// keeps its cell where that is safe.
func cellOf(c *core.Charge) core.Charge {
	return core.Charge{Rule: c.Rule, Quota: c.Quota.OverflowQuota()}
}

func (s *Store) hashCell(policy string, cell *core.Charge) uint64 {
	return maphash.Comparable(s.seed, struct {
		policy, rule string
		quota        core.Quota
	}{policy, cell.Rule, cell.Quota})
}

// overflow makes a decision with cells, and keeps what is new.
func (s *Store) overflow(now int64, policy string, charges []core.Charge, keys []found, states []core.State) core.Decision {
	all := charges
	var both []pair
	for i := range keys {
		k := &keys[i]
		if k.entry == nil || k.entry.cell || k.entry.debt || k.entry.shared <= now {
			continue
		}
		if cell := s.findCell(&s.shards[k.shard], policy, &charges[i]); cell != nil {
			all = append(all[:len(all):len(all)], charges[i])
			states = append(states, cell.state)
			both = append(both, pair{i, cell})
		}
	}
	d := core.Decide(now, all, states)
	if len(both) > 0 {
		d = fold(&d, len(keys), both)
	}
	for i := range keys {
		d.SetOverflow(i, keys[i].quotas)
	}
	for _, b := range both {
		b.cell.prolong()
	}
	for i := range keys {
		k := &keys[i]
		takes := d.Allowed && charges[i].Cost > 0
		switch {
		case k.entry == nil:
			continue
		case k.entry.debt && !k.entry.known && !takes:
			k.entry = nil // what it has is not its own
			continue
		}
		k.entry.prolong()
		switch {
		case k.entry.cell && takes:
			k.entry.shared = k.entry.expires
			shard := &s.shards[k.shard]
			shard.shared = max(shard.shared, k.entry.shared)
		case k.entry.debt:
			k.entry.shared = k.entry.expires
		}
	}
	s.keep(now, policy, charges, keys)
	return d
}

// A pair is a charge that is taken from an entry and from a cell.
type pair struct {
	charge int
	cell   *entry
}

// fold makes one outcome of the two of each pair, of which d has the second
// after those of all n charges: the one with less room, and the longer times.
func fold(d *core.Decision, n int, pairs []pair) core.Decision {
	folded := core.NewDecision(d.At, n)
	folded.Allowed, folded.Delay = d.Allowed, d.Delay
	outcomes := folded.Outcomes()
	copy(outcomes, d.Outcomes())
	for i, p := range pairs {
		o, cell := &outcomes[p.charge], &d.Outcomes()[n+i]
		switch {
		case cell.Remaining < o.Remaining:
			o.Remaining, o.MoreAfter = cell.Remaining, cell.MoreAfter
		case cell.Remaining == o.Remaining:
			o.MoreAfter = max(o.MoreAfter, cell.MoreAfter)
		}
		if o.RetryAfter != core.Never { // then the cell's is, too
			o.RetryAfter = max(o.RetryAfter, cell.RetryAfter)
		}
		if !o.Fits() {
			o.MoreAfter = 0
		}
		o.ResetAfter = max(o.ResetAfter, cell.ResetAfter)
	}
	return folded
}

// state returns what k is decided by.
func (k *found) state() core.State {
	if k.entry == nil {
		return crowded{}
	}
	return k.entry.state
}

// crowded is the state of a key for which there is no memory: it has no room,
// and nobody can tell yet when it will.
type crowded struct{ core.Base }

func (crowded) Advance(*core.Quota, int64) int64  { return 0 }
func (crowded) Take(int64, uint64) (int64, int64) { return 0, 0 }
func (crowded) Used() int64                       { return 1 }
func (crowded) After(int64) int64                 { return crowdedRetry }
func (crowded) Expires() int64                    { return 0 }

func (crowded) Return(*core.Return, int64) int64 { return 0 }

func (c crowded) Clone() core.State { return c }
