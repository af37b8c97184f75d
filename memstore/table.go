package memstore

import (
	"math/bits"
	"strings"
	"sync"
	"unique"

	"github.com/routelimit/limit/core"
)

// A rule names a rule. Rules are few and have many keys, so that an entry
// holds a handle in place of the two names.
type rule struct{ policy, name string }

// An entry is what the store knows of one key of one rule, or of those keys
// that share a cell.
type entry struct {
	next      *entry // in the same bucket
	hash      uint64
	rule      unique.Handle[rule]
	key       string
	state     core.State
	expires   int64 // when state is as good as new
	shared    int64 // until when a cell counts for it; of a cell, for keys without an entry
	algorithm core.Algorithm
	known     bool // whether the entry is in a table
	cell      bool // whether it is a cell: see overflow.go
	debt      bool // whether it began with a copy of a cell's debt
	held      bool // whether a decision under way has it, so that it may not be forgotten
}

// newcomers holds entries that are in no table: those for keys not seen before
// whose charges took nothing. It keeps a flood of refusals from allocating.
var newcomers = sync.Pool{New: func() any { return new(entry) }}

func newcomer(a core.Algorithm) *entry {
	e := newcomers.Get().(*entry)
	if e.state == nil || e.algorithm != a {
		e.state, e.algorithm = core.NewState(a), a
	}
	e.expires, e.shared, e.cell = 0, 0, false
	return e
}

// prolong brings the expiry up to date. It is never earlier than by a longer
// window that the rule had before.
func (e *entry) prolong() { e.expires = max(e.expires, e.state.Expires()) }

// name makes e the entry of a charge. It copies the strings, which may be
// slices of a whole request.
func (e *entry) name(hash uint64, policy string, c *core.Charge) {
	e.hash = hash
	e.rule = unique.Make(rule{policy, c.Rule}) // copies
	e.key = strings.Clone(c.Key)
	e.known = true
}

// is reports whether e is the entry of a charge. A rule of another algorithm
// is another rule: neither could read the other's state.
func (e *entry) is(hash uint64, policy string, c *core.Charge) bool {
	return e.hash == hash && e.key == c.Key && e.algorithm == c.Quota.Algorithm &&
		e.rule.Value() == rule{policy, c.Rule}
}

// A table holds entries in buckets by their hash. It grows and shrinks by one
// bucket at a time, by splitting one or joining two (linear hashing), so that
// nobody waits for a table to be copied and memory follows the keys. A map
// does not shrink, and cannot be walked a few steps at a time.
type table struct {
	buckets []*entry
	len     int // entries, about half as many as buckets to as many
	cursor  int // the bucket that sweep looks into next
}

// sweepSteps is how many buckets an insertion looks into for entries to
// forget. There are at most two buckets for each entry, so that half as many
// insertions as there are entries look into all.
const sweepSteps = 4

// find returns the entry of a charge, or nil.
func (t *table) find(hash uint64, policy string, c *core.Charge) *entry {
	if t.len == 0 {
		return nil
	}
	for e := *t.bucket(hash); e != nil; e = e.next {
		if e.is(hash, policy, c) {
			return e
		}
	}
	return nil
}

// insert adds an entry that the table does not have, and forgets some that
// have expired.
func (t *table) insert(e *entry, now int64) {
	t.sweep(now)
	t.len++
	if t.len > len(t.buckets) {
		t.split()
	}
	t.link(e)
}

func (t *table) sweep(now int64) {
	for range min(sweepSteps, len(t.buckets)) {
		if t.cursor >= len(t.buckets) {
			t.cursor = 0
		}
		for at := &t.buckets[t.cursor]; *at != nil; {
			if (*at).expires > now || (*at).held {
				at = &(*at).next
				continue
			}
			*at = (*at).next
			t.len--
		}
		t.cursor++
		for len(t.buckets) > 2*t.len+1 {
			t.join()
		}
	}
}

// bucket returns the bucket of a hash: as many of its bits as number the
// buckets, or one bit less where that bucket has not been split off yet. The
// low bits have chosen the shard.
func (t *table) bucket(hash uint64) **entry {
	n := uint64(len(t.buckets))
	mask := uint64(1)<<bits.Len64(n-1) - 1
	i := hash >> shardBits & mask
	if i >= n {
		i &= mask >> 1
	}
	return &t.buckets[i]
}

func (t *table) link(e *entry) {
	b := t.bucket(e.hash)
	e.next, *b = *b, e
}

// split adds a bucket and moves to it its share of the one it splits from,
// whose number is the same but for the highest bit.
func (t *table) split() {
	n := len(t.buckets)
	t.buckets = append(t.buckets, nil)
	if n > 0 {
		from := &t.buckets[n&^(1<<(bits.Len(uint(n))-1))]
		chain := *from
		*from = nil
		t.relink(chain)
	}
}

// join undoes the last split.
func (t *table) join() {
	last := len(t.buckets) - 1
	chain := t.buckets[last]
	t.buckets[last] = nil
	t.buckets = t.buckets[:last]
	t.relink(chain)
	if cap(t.buckets) > 4*last {
		t.buckets = append(make([]*entry, 0, 2*last), t.buckets...)
	}
}

func (t *table) relink(chain *entry) {
	for chain != nil {
		e := chain
		chain = e.next
		t.link(e)
	}
}
