package memstore

import (
	"math/bits"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// A table holds entries in buckets by their hash. It grows and shrinks by one
// bucket at a time, by splitting one or joining two (linear hashing), so no
// request waits for a table to be copied, and memory follows the keys. A map does
// not shrink, and cannot be walked a few steps at a time.
//
// The table is changed under the lock of its shard, and can be searched without.
// Such a search may miss an entry that is being moved, and may find one that is
// being dropped.
type table struct {
	buckets atomic.Pointer[buckets] // nil while the table has never had an entry
	len     int                     // entries, about half as many as buckets to as many
	cursor  int                     // the bucket that sweep checks next
}

// Buckets are chains of entries.
type buckets struct {
	n     atomic.Int32            // in use, at least one
	heads []atomic.Pointer[entry] // a power of two
}

// sweepSteps is how many buckets an insertion checks for expired entries. There
// are at most two buckets for each entry, so half as many insertions as there are
// entries check them all.
const sweepSteps = 4

// of returns the bucket of a hash. Its number is as many bits of the hash as
// number the buckets, or one bit less if that bucket does not exist yet.
func (b *buckets) of(hash uint32) *atomic.Pointer[entry] {
	n := uint32(b.n.Load())
	mask := uint32(1)<<bits.Len32(n-1) - 1
	i := hash & mask
	if i >= n {
		i &= mask >> 1
	}
	return &b.heads[i]
}

// find returns the entry of a charge, or nil.
func (t *table) find(hash uint64, policy string, c *core.Charge) *entry {
	b := t.buckets.Load()
	if b == nil {
		return nil
	}
	short := shortHash(hash)
	for e := b.of(short).Load(); e != nil; e = e.next.Load() {
		if e.is(short, policy, c) {
			return e
		}
	}
	return nil
}

// count returns the number of buckets.
func (t *table) count() int {
	if b := t.buckets.Load(); b != nil {
		return int(b.n.Load())
	}
	return 0
}

// insert adds an entry that the table does not have, and drops some that have
// expired.
func (t *table) insert(e *entry, now int64) {
	t.sweep(now)
	t.len++
	e.status = stored
	if t.len > t.count() {
		t.split()
	}
	t.buckets.Load().link(e)
}

// drop removes the entry that a link of a chain leads to. The entry keeps its own
// link, since a search may be there.
func (t *table) drop(link *atomic.Pointer[entry]) {
	e := link.Load()
	link.Store(e.next.Load())
	e.withdraw()
	e.status = dropped
	t.len--
}

// sweep drops the expired entries of a few buckets.
func (t *table) sweep(now int64) {
	for range min(sweepSteps, t.count()) {
		if t.cursor >= t.count() {
			t.cursor = 0
		}
		for link := &t.buckets.Load().heads[t.cursor]; ; {
			e := link.Load()
			if e == nil {
				break
			}
			if e.expires > now || e.pinned {
				link = &e.next
			} else {
				t.drop(link)
			}
		}
		t.cursor++
		for t.count() > 2*t.len+1 {
			t.join()
		}
	}
}

func (b *buckets) link(e *entry) {
	head := b.of(e.hash)
	e.next.Store(head.Load())
	head.Store(e)
}

// split adds a bucket and moves entries to it from the bucket that has the same
// number without the highest bit.
func (t *table) split() {
	n := t.count()
	if n == 0 {
		t.resize(1)
		return
	}
	if n == len(t.buckets.Load().heads) {
		t.resize(2 * n)
	}
	b := t.buckets.Load()
	b.n.Add(1)
	b.relink(&b.heads[n&^(1<<(bits.Len(uint(n))-1))])
}

// join undoes the last split.
func (t *table) join() {
	b := t.buckets.Load()
	last := b.n.Add(-1)
	b.relink(&b.heads[last])
	if room := len(b.heads); room > 4*int(last) {
		t.resize(room / 2)
	}
}

// resize copies the buckets to a slice of another length. Copying is fast: 100,000
// buckets take less than 100 µs. A search may still be in the old slice.
func (t *table) resize(length int) {
	b := &buckets{heads: make([]atomic.Pointer[entry], length)}
	b.n.Store(1)
	if old := t.buckets.Load(); old != nil {
		b.n.Store(old.n.Load())
		copy(b.heads, old.heads)
	}
	t.buckets.Store(b) // complete: a search may come at once
}

// relink moves the entries of a bucket to where they belong.
func (b *buckets) relink(from *atomic.Pointer[entry]) {
	chain := from.Load()
	from.Store(nil)
	for chain != nil {
		e := chain
		chain = e.next.Load()
		b.link(e)
	}
}
