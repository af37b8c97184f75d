// Package memstore keeps quotas in the memory of this process.
//
// Its [Store] is for a service that runs as one process, for tests, and as the
// fallback of package guard while a shared store is unavailable. Two processes
// with a memstore each admit twice the limit. Use package redisstore for limits
// that several processes share.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/routelimit/limit/core"
)

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// MaxKeys is the maximum number of partly used keys in memory, rounded up
	// to a multiple of 256. 0 means [DefaultMaxKeys]. Set it above the number of
	// clients that you expect in the longest window. Beyond it, new keys share
	// overflow quotas: see [Store]. The store has 256 parts with an equal share
	// of MaxKeys, so the first part is full a little earlier. Rules that all
	// requests share have room for another quarter of MaxKeys.
	MaxKeys int

	// Now is the clock, in microseconds since the epoch, for simulations and
	// tests. It may step back. Nil means the clock of the machine.
	Now func() int64
}

// DefaultMaxKeys is the MaxKeys of the zero [Options]. That many keys take about
// 25 MB: 190 bytes for an IPv4 address that has used 5 units of a sliding log.
// Until the garbage collector runs, the process may use as much again.
const DefaultMaxKeys = 1 << 17

// A Store keeps quotas in this process. It is safe for concurrent use, starts no
// goroutine and needs no closing. A restart loses all quotas.
//
// # Time
//
// The clock is the wall clock at [New] plus the monotonic time since. It ignores
// later corrections of the wall clock. If the system's monotonic clock stops
// while the machine is suspended, as on Linux, quotas do not refill meanwhile.
//
// A decision reads the clock once. It locks the shards of its keys in ascending
// order, so that decisions cannot deadlock. The times of a key never go backward.
//
// # Memory
//
// A key of up to 15 bytes takes about 120 bytes, and a longer one its own bytes
// more. From the second unit on, a [core.SlidingLog] takes 24 bytes more, and 8 for each
// unit that it has held at once, rounded up to a power of two. [core.Concurrency] takes 24
// bytes for each lease. MaxKeys bounds keys, not units: the log of a large limit is large.
//
// A decision on known keys allocates nothing if it has at most four charges.
// Refused charges and charges of cost 0 are never stored. Keys with a full quota
// are dropped as new keys arrive, a few at a time. So memory holds at most about
// twice the keys that were partly used at once, and a few hundred more.
//
// # Overflow
//
// There are at most [Options].MaxKeys partly used keys. None of them is dropped
// for a new key: otherwise a flood of random keys would reset clients that have
// used up their quotas. Instead, new keys share overflow quotas. A rule has 256
// of them, each as large as the quota of one key. So no key ever gets more than
// its quota, and known keys are not affected.
//
// New keys may be refused early while there is no room, and for one window after:
// a key that leaves an overflow quota cannot begin with a full quota. Such
// decisions have the mode [core.ModeOverflow], and [core.Decision.Overflow] names
// the charges. With very many rules, there may be no room for an overflow quota
// either, or for a rule that all requests share. Then a new key is refused with a
// RetryAfter of one second.
//
// There are about four holds for each of MaxKeys at most, over all keys, those included
// that are remembered after their end. Beyond that, requests are decided, and not held.
//
// Bans have no overflow quotas: there, clients would be barred for the strikes of
// others. So without room for a new key, a [core.Ban] counts no strikes of the key
// and does not bar it; the other rules still refuse its requests. A key that is
// known keeps its strikes and its bar.
//
// Limitations of overflow quotas:
//
//   - A [core.FixedWindow] that begins with its first unit begins, in an overflow
//     quota, with the first unit of any key. When a key comes to it, parts of
//     three windows may overlap the length of one, instead of two.
//   - A rule gets new overflow quotas if its algorithm or its window changes, or the
//     rate or burst of a bucket or queue.
type Store struct {
	shards    [shards]shard // first, and so aligned to cache lines
	names     names
	seed      maphash.Seed
	clock     func() int64 // of the options, in microseconds; nil for what has passed since base
	base      time.Time
	micros    int64 // base, in microseconds
	room      int   // entries of keys in a shard
	monotonic bool  // the clock never steps back

	_       [cacheLine]byte // decisions read what is before
	holding atomic.Int64    // holds of all keys
	swept   atomic.Int64    // when they were last forgotten for room
}

var _ core.Store = (*Store)(nil)

const (
	shardBits    = 8
	keyShards    = 1 << shardBits
	sharedShards = 64
	shards       = keyShards + sharedShards
	cacheLine    = 64
)

// A shard is a part of the keys under one lock. It has cache lines of its own, so
// that cores that use different shards do not contend.
type shard struct {
	mu          sync.Mutex
	last        int64 // the time of its last decision; a later one is not dated before
	sharedUntil int64 // the latest of its overflow quotas: see entry.sharedUntil
	keys        table // the end of the first cache line, which is all that known keys need
	overflow    table // see overflow.go
	held        held  // see hold.go
	_           [cacheLine - (unsafe.Sizeof(sync.Mutex{})+2*unsafe.Sizeof(int64(0))+2*unsafe.Sizeof(table{})+unsafe.Sizeof(held{}))%cacheLine]byte
}

// New returns an empty store. A nil options means the zero Options. New panics
// if MaxKeys is negative.
func New(options *Options) *Store {
	most := DefaultMaxKeys
	if options != nil && options.MaxKeys != 0 {
		most = options.MaxKeys
	}
	if most < 0 {
		panic(fmt.Sprintf("memstore: MaxKeys is %d: write how many keys to keep, or 0 for %d", most, DefaultMaxKeys))
	}
	base := time.Now()
	s := &Store{seed: maphash.MakeSeed(), base: base, micros: base.UnixMicro(), room: (most-1)/keyShards + 1, monotonic: true}
	if options != nil && options.Now != nil {
		s.clock, s.monotonic = options.Now, false
	}
	return s
}

// now returns the time in microseconds.
func (s *Store) now() int64 {
	if s.clock != nil {
		return core.ClampTime(s.clock())
	}
	return core.ClampTime(s.micros + time.Since(s.base).Microseconds())
}

// Take implements [core.Store]. Its errors are those of [core.ValidateAsks]
// and that of a context that was done before the call. After either, nothing was
// taken. Take waits only for the locks of its keys' shards, each held for one
// call.
func (s *Store) Take(ctx context.Context, asks []core.Ask) error {
	if err := core.ValidateAsks(asks); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n := 0
	for i := range asks {
		n += len(asks[i].Charges)
	}
	var all [few]target
	keys := all[:]
	if n > len(all) {
		keys = make([]target, n)
	}
	keys = keys[:n]
	n = 0
	for i := range asks {
		for j := range asks[i].Charges {
			s.place(&keys[n], &asks[i].Charges[j])
			n++
		}
	}
	var o order
	now := s.lock(keys, &o)
	defer s.unlock(keys, &o) // deferred, since a recovered panic must not leave a shard locked
	n = 0
	for i := range asks {
		mine := keys[n:][:len(asks[i].Charges)]
		if i > 0 {
			s.find(mine) // an earlier ask may have added or dropped them
		}
		s.take(&asks[i], mine, now)
		n += len(mine)
	}
	return nil
}

// take decides an ask on keys whose entries were found, under their locks.
func (s *Store) take(ask *core.Ask, keys []target, now int64) {
	if takeLogs(ask, keys, now) {
		return
	}
	var all [few]core.State
	states := all[:0]
	overflows := false
	for i := range keys {
		k := &keys[i]
		e := k.entry
		if e != nil && e.algorithm != k.charge.Quota.Algorithm {
			e = s.turn(k)
		}
		if e != nil && e.sharedUntil <= now {
			states = append(states, e.state())
		} else {
			k.quotas = s.locate(keys, i, now)
			overflows = overflows || k.quotas != core.OwnQuota
			states = append(states, k.state())
		}
	}
	if overflows {
		s.takeOverflow(ask, keys, states, now)
		return
	}
	ask.Decision.Decide(now, ask.Charges, states)
	known := true
	for i := range keys {
		e := keys[i].entry
		e.prolong()
		known = known && e.has(stored)
	}
	if !known {
		s.insertNew(now, keys)
	}
}

// insertNew stores the new entries that are partly used. All entries must be
// prolonged before: an insertion drops entries that have expired.
func (s *Store) insertNew(now int64, keys []target) {
	for i := range keys {
		k := &keys[i]
		switch {
		case k.entry == nil || k.entry.has(stored):
		case k.entry.expires <= now:
			if !k.charge.Debt { // a debt may leave a bar that has ended, which would count for another key
				spare(k.entry.algorithm, k.entry.short).Put(k.entry)
			}
		case k.entry.kind == overflow:
			shared := overflowOf(k.charge)
			k.entry.name(s.hashOverflow(&shared), &shared)
			s.shards[k.shard].overflow.insert(k.entry, now)
		default:
			k.entry.name(k.hash, k.charge)
			shard := &s.shards[k.shard]
			shard.keys.insert(k.entry, now)
			shard.overflow.sweep(now)
		}
	}
}

// few is how many charges need no allocation: most policies have few rules.
const few = 4

// A target is what a charge takes from.
type target struct {
	charge *core.Charge
	name   *name  // of the rule, or nil
	hash   uint32 // see place
	shard  int
	entry  *entry        // of the key, or an overflow quota, or nil if there is no room for either
	quotas core.Overflow // that decide the charge
}

// place makes k the target of a charge, but for its entry: the low bits of a hash choose
// the shard, the others the bucket.
//
// Rules that all requests share have an empty key, and shards of their own. Those
// are locked last, and so for the shortest time.
func (s *Store) place(k *target, c *core.Charge) {
	if n := s.name(c); n != nil {
		s.placeNamed(k, c, n)
	} else {
		s.placeHashed(k, c, s.hashRule(c))
	}
}

// placeNamed is place for a charge of a rule with a name.
func (s *Store) placeNamed(k *target, c *core.Charge, n *name) {
	k.name = n
	s.placeHashed(k, c, n.hash)
}

func (s *Store) placeHashed(k *target, c *core.Charge, hash uint64) {
	k.charge = c
	if c.Key != "" {
		hash = (hash ^ maphash.String(s.seed, c.Key)) * 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
		hash ^= hash >> 32
	}
	k.hash, k.shard = uint32(hash>>shardBits), int(hash%keyShards)
	if c.Key == "" {
		k.shard = keyShards + int(hash%sharedShards)
	}
}

// An order has the numbers of keys in ascending order of their shards: all decisions lock in this
// order.
type order [core.MaxCharges]uint8

// sort makes o the order of keys.
func (o *order) sort(keys []target) {
	for i := range keys {
		at := i
		for ; at > 0 && keys[o[at-1]].shard > keys[i].shard; at-- {
			o[at] = o[at-1]
		}
		o[at] = uint8(i)
	}
}

// lock locks the shards of keys, sets their order, finds their entries, and returns the time.
//
// Entries are found before the next shard is locked. With many keys, a search
// waits for memory, and requests that share a rule must not wait for that.
func (s *Store) lock(keys []target, o *order) (now int64) {
	o.sort(keys)
	now = s.now() // before the locks, to hold them for less: see shard.last
	var last *shard
	for _, i := range o[:len(keys)] {
		k := &keys[i]
		at := &s.shards[k.shard]
		if at != last {
			last = at
			at.mu.Lock()
			if s.monotonic {
				now = max(now, at.last)
			}
		}
		k.entry = at.keys.find(k)
	}
	for i := range keys {
		s.shards[keys[i].shard].last = now
	}
	return now
}

// locked places n charges and locks the shards of their keys, as lock does.
func (s *Store) locked(n int, charge func(i int) *core.Charge) (keys []target, o order, now int64) {
	keys = make([]target, n)
	for i := range keys {
		s.place(&keys[i], charge(i))
	}
	now = s.lock(keys, &o)
	return keys, o, now
}

// find finds the entries of keys, under the locks of their shards.
func (s *Store) find(keys []target) {
	for i := range keys {
		k := &keys[i]
		k.entry = s.shards[k.shard].keys.find(k)
	}
}

func (s *Store) unlock(keys []target, o *order) {
	last := -1
	for _, i := range o[:len(keys)] {
		if at := keys[i].shard; at != last {
			last = at
			s.shards[at].mu.Unlock()
		}
	}
}
