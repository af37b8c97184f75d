package memstore

import "math/bits"

// A table holds entries in buckets by their hash. It grows and shrinks by one
// bucket at a time, by splitting one or joining two (linear hashing), so no
// request waits for a table to be copied, and memory follows the keys. A map does
// not shrink, and cannot be walked a few steps at a time.
type table struct {
	buckets []*entry
	len     int // entries, about half as many as buckets to as many
	cursor  int // the bucket that sweep checks next
}

// sweepSteps is how many buckets an insertion checks for expired entries. There
// are at most two buckets for each entry, so half as many insertions as there are
// entries check them all.
const sweepSteps = 4

// find returns the entry of a target, or nil.
func (t *table) find(k *target) *entry {
	if t.len == 0 {
		return nil
	}
	for e := *t.bucket(k.hash); e != nil; e = e.next {
		if e.is(k) {
			return e
		}
	}
	return nil
}

// insert adds an entry that the table does not have, and drops some that have
// expired.
func (t *table) insert(e *entry, now int64) {
	t.sweep(now)
	t.len++
	if t.len > len(t.buckets) {
		t.split()
	}
	t.link(e)
}

// sweep drops the expired entries of a few buckets.
func (t *table) sweep(now int64) {
	for range min(sweepSteps, len(t.buckets)) {
		if t.cursor >= len(t.buckets) {
			t.cursor = 0
		}
		for at := &t.buckets[t.cursor]; *at != nil; {
			if (*at).expires > now || (*at).has(pinned) {
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

// bucket returns the bucket of a hash. Its number is as many bits of the hash as
// number the buckets, or one bit less if that bucket does not exist yet.
func (t *table) bucket(hash uint32) **entry {
	n := uint32(len(t.buckets))
	mask := uint32(1)<<bits.Len32(n-1) - 1
	i := hash & mask
	if i >= n {
		i &= mask >> 1
	}
	return &t.buckets[i]
}

func (t *table) link(e *entry) {
	b := t.bucket(e.hash)
	e.next, *b = *b, e
}

// split adds a bucket and moves entries to it from the bucket that has the same
// number without the highest bit.
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
