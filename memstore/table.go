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

// Buckets are chains of entries. They are in segments, each as long as all before
// it, so that none is ever moved.
type buckets struct {
	n        atomic.Int32 // buckets in use
	segments [][]atomic.Pointer[entry]
}

// sweepSteps is how many buckets an insertion checks for expired entries. There
// are at most two buckets for each entry, so half as many insertions as there are
// entries check them all.
const sweepSteps = 4

// at returns the i-th bucket.
func (b *buckets) at(i uint32) *atomic.Pointer[entry] {
	k := bits.Len32(i)
	return &b.segments[k][i-1<<k>>1]
}

// of returns the bucket of a hash. Its number is as many bits of the hash as
// number the buckets, or one bit less if that bucket does not exist yet.
func (b *buckets) of(hash uint32) *atomic.Pointer[entry] {
	n := uint32(b.n.Load())
	mask := uint32(1)<<bits.Len32(n-1) - 1
	i := hash & mask
	if i >= n {
		i &= mask >> 1
	}
	return b.at(i)
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
	e.stored = true
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
	e.dropped = true
	t.len--
}

// sweep drops the expired entries of a few buckets.
func (t *table) sweep(now int64) {
	for range min(sweepSteps, t.count()) {
		if t.cursor >= t.count() {
			t.cursor = 0
		}
		for link := t.buckets.Load().at(uint32(t.cursor)); ; {
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
	b := t.buckets.Load()
	if b == nil {
		b = &buckets{segments: [][]atomic.Pointer[entry]{make([]atomic.Pointer[entry], 1)}}
		b.n.Store(1)
		t.buckets.Store(b)
		return
	}
	n := uint32(b.n.Load())
	if k := bits.Len32(n); k == len(b.segments) {
		b = t.resize(k + 1)
	}
	from := b.at(n &^ (1 << (bits.Len32(n) - 1)))
	b.n.Add(1)
	b.relink(from)
}

// join undoes the last split.
func (t *table) join() {
	b := t.buckets.Load()
	last := uint32(b.n.Add(-1))
	b.relink(b.at(last))
	// One segment is kept for when the table grows again.
	if k := bits.Len32(last - 1); k+2 < len(b.segments) {
		t.resize(k + 2)
	}
}

// resize returns buckets that have the given number of segments. Those before are
// not changed, since a search may be in them.
func (t *table) resize(segments int) *buckets {
	old := t.buckets.Load()
	b := &buckets{segments: make([][]atomic.Pointer[entry], segments)}
	b.n.Store(old.n.Load())
	if copy(b.segments, old.segments) < segments {
		b.segments[segments-1] = make([]atomic.Pointer[entry], 1<<(segments-2))
	}
	t.buckets.Store(b)
	return b
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
