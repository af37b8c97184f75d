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
	"math/bits"
	"sync"
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
// 30 MB: 220 bytes for an IPv4 address that has used 5 units of a sliding log.
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
// A refusal that would be the same as the last one, but for the time that has
// passed, takes no lock.
//
// # Memory
//
// A key takes about 120 bytes and its own bytes. A [core.SlidingLog] that has held
// more than one unit at once takes 64 bytes more, and one that has held more than
// four takes 32 bytes and 8 for each unit, rounded up to a power of two. A key of
// another algorithm takes about 90 bytes, its own and its state, such as 24 for each
// lease of [core.Concurrency]. A key that has been refused takes 24 bytes more, and
// 168 while it is refused without a lock. MaxKeys bounds keys, not units: the log of
// a large limit is large.
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
// Limitations of overflow quotas:
//
//   - A [core.FixedWindow] that begins with its first unit begins, in an overflow
//     quota, with the first unit of any key. When a key comes to it, parts of
//     three windows may overlap the length of one, instead of two.
//   - A rule gets new overflow quotas if its window changes, or the rate or burst
//     of a bucket or queue.
type Store struct {
	shards    [shards]shard // first, and so aligned to cache lines
	seed      maphash.Seed
	now       func() int64 // microseconds
	room      int          // entries of keys in a shard
	monotonic bool         // the clock never steps back
}

var _ core.Store = (*Store)(nil)

const (
	shardBits    = 8
	keyShards    = 1 << shardBits
	sharedShards = 64
	shards       = keyShards + sharedShards
	cacheLine    = 64

	// fewCharges is how many charges a decision can have without an allocation.
	// Most policies have fewer rules.
	fewCharges = 4
)

// A shard is a part of the keys under one lock. It has cache lines of its own, so
// that cores that use different shards do not contend.
type shard struct {
	mu          sync.Mutex
	last        int64 // the time of its last decision; a later one is not dated before
	sharedUntil int64 // the latest of its overflow quotas: see entry.sharedUntil
	overflow    table // see overflow.go
	_           [cacheLine - (unsafe.Sizeof(sync.Mutex{})+2*unsafe.Sizeof(int64(0))+unsafe.Sizeof(table{}))%cacheLine]byte

	// Keys are searched without the lock, and so are not where it is.
	keys table
	_    [cacheLine - unsafe.Sizeof(table{})%cacheLine]byte
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
	s := &Store{seed: maphash.MakeSeed(), room: (most-1)/keyShards + 1}
	if options != nil && options.Now != nil {
		s.now = options.Now
		return s
	}
	base := time.Now()
	micros := base.UnixMicro()
	s.now = func() int64 { return micros + time.Since(base).Microseconds() }
	s.monotonic = true
	return s
}

// Take implements [core.Store]. Its errors are those of [core.ValidateCharges]
// and that of a context that was done before the call. After either, nothing was
// taken. Take waits only for the locks of its keys' shards, each held for one
// decision.
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (d core.Decision, err error) {
	if err = ctx.Err(); err != nil {
		return d, err
	}
	if len(charges) > core.MaxCharges {
		return d, core.ValidateCharges(charges)
	}
	var few [fewCharges]target
	keys := few[:]
	if len(charges) > len(few) {
		keys = make([]target, len(charges))
	}
	keys = keys[:len(charges)]
	now := s.now() // before the locks, to hold them for less: see shard.last
	// The search is without locks too: a key that is not in the processor's caches
	// must not make others wait.
	ofPolicy := s.hashPolicy(policy)
	for i := range charges {
		k, c := &keys[i], &charges[i]
		k.hash = s.hash(ofPolicy, c)
		k.shard = shardOf(k.hash, c.Key)
		if c.Key != "" {
			k.entry = s.shards[k.shard].keys.find(k.hash, policy, c)
		}
	}
	if s.refuse(&d, now, policy, charges, keys) {
		return d, nil
	}
	if err = core.ValidateCharges(charges); err != nil {
		return d, err
	}
	var fewShards [fewCharges]int
	locked := inOrder(keys, fewShards[:0])
	n := 0
	defer s.unlock(locked, &n) // deferred, since a recovered panic must not leave a shard locked
	now = s.lock(locked, &n, keys, now)
	var fewStates [fewCharges]core.State
	states := fewStates[:0]
	overflows := false
	for i := range keys {
		k := &keys[i]
		if k.entry == nil || k.entry.status == dropped { // or another decision has stored it meanwhile
			k.entry = s.shards[k.shard].keys.find(k.hash, policy, &charges[i])
		}
		if k.entry != nil {
			k.entry.withdraw()
		}
	}
	for i := range keys {
		k := &keys[i]
		if e := k.entry; e != nil && e.sharedUntil() <= now {
			states = append(states, e.state)
		} else {
			k.quotas = s.locate(keys, i, policy, &charges[i], now)
			overflows = overflows || k.quotas != core.OwnQuota
			states = append(states, k.state())
		}
	}
	if overflows {
		return s.takeOverflow(now, policy, charges, keys, states), nil
	}
	d.Decide(now, charges, states)
	known := true
	for i := range keys {
		e := keys[i].entry
		e.prolong()
		if r := e.rare.Load(); r != nil && d.Allowed {
			r.refused = false
		}
		known = known && e.status == stored
	}
	if known && !d.Allowed {
		publish(&d, charges, keys)
	}
	if !known {
		s.insertNew(now, policy, charges, keys)
	}
	return d, nil
}

// insertNew stores the new entries that are partly used. All entries must be
// prolonged before: an insertion drops entries that have expired.
func (s *Store) insertNew(now int64, policy string, charges []core.Charge, keys []target) {
	for i := range keys {
		k := &keys[i]
		switch {
		case k.entry == nil || k.entry.status != unstored:
		case k.entry.expires <= now:
			spare[k.entry.algorithm].Put(k.entry)
		case k.entry.kind == overflow:
			shared := overflowOf(&charges[i])
			k.entry.name(s.hashOverflow(policy, &shared), policy, &shared)
			s.shards[k.shard].overflow.insert(k.entry, now)
		default:
			k.entry.name(k.hash, policy, &charges[i])
			shard := &s.shards[k.shard]
			shard.keys.insert(k.entry, now)
			shard.overflow.sweep(now)
		}
	}
}

// A target is what a charge takes from.
type target struct {
	hash   uint64
	shard  int
	entry  *entry        // of the key, or an overflow quota, or nil if there is no room for either
	quotas core.Overflow // that decide the charge
}

// hash returns the hash of a key, from that of its policy.
func (s *Store) hash(ofPolicy uint64, c *core.Charge) uint64 {
	h := mix(ofPolicy, maphash.String(s.seed, c.Rule))
	if c.Key != "" {
		h = mix(h, maphash.String(s.seed, c.Key))
	}
	return h
}

// hashPolicy returns what hash needs. It is much of the work, and the same for all
// charges of a decision.
func (s *Store) hashPolicy(policy string) uint64 { return maphash.String(s.seed, policy) }

// mix returns a hash of two hashes, which differs if their order does.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b|1)
	return high ^ low
}

// shardOf returns the number of the shard of a key. Rules that all requests share
// have an empty key, and shards of their own. Those are locked last, and so for
// the shortest time.
func shardOf(hash uint64, key string) int {
	if key == "" {
		return keyShards + int(hash%sharedShards)
	}
	return int(hash % keyShards)
}

// inOrder appends the shards of keys to an empty list, each once, in the order in
// which all decisions lock.
func inOrder(keys []target, list []int) []int {
	for i := range keys {
		shard, at := keys[i].shard, len(list)
		for at > 0 && list[at-1] > shard {
			at--
		}
		if at > 0 && list[at-1] == shard {
			continue
		}
		if list = append(list, shard); at < len(list)-1 { // seldom: shared rules come last
			copy(list[at+1:], list[at:])
			list[at] = shard
		}
	}
	return list
}

// lock locks the shards of keys and counts them in n. It returns the time, which is
// now or a little later.
func (s *Store) lock(list []int, n *int, keys []target, now int64) int64 {
	for _, i := range list {
		shard := &s.shards[i]
		shard.mu.Lock()
		*n++
		if s.monotonic {
			now = max(now, shard.last)
		}
		if *n == len(list) {
			break
		}
		// A state that is not in the processor's caches is fetched now, and not under
		// the next lock, which may be that of a rule that all requests share.
		for k := range keys {
			if e := keys[k].entry; e != nil && keys[k].shard == i {
				e.state.Used()
			}
		}
	}
	for _, i := range list {
		s.shards[i].last = now
	}
	return now
}

// unlock unlocks the first n shards.
func (s *Store) unlock(list []int, n *int) {
	for _, i := range list[:*n] {
		s.shards[i].mu.Unlock()
	}
}
