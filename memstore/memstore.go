// Package memstore is a [core.Store] in the memory of this process.
//
// It is the store for a service that runs as one process, for tests, and for
// the hour in which a shared store is out of reach. Two processes with a
// memstore each admit twice the limit: what several instances share belongs in
// package redisstore.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
	"unsafe"

	"github.com/routelimit/limit/core"
)

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// MaxKeys is the most keys that have an entry of their own at once,
	// rounded up to a multiple of 256; 0 means [DefaultMaxKeys]. Each of 256
	// parts of the store has its share, so that some are full a little before
	// all are. Rules that all requests share are few and have room for a
	// quarter as many beside it. What happens beyond is told at [Store].
	MaxKeys int

	// Now is the clock, in microseconds since the epoch, for simulations and
	// tests. It may step back. Nil means that of the machine.
	Now func() int64
}

// DefaultMaxKeys is how many keys a store keeps unless told otherwise: what
// some 50 MB hold, of the usual kind and with the collector's share.
const DefaultMaxKeys = 1 << 17

// A Store keeps quotas in this process. It is safe for concurrent use, starts
// no goroutine and needs no closing.
//
// A decision reads the clock once, and locks the shards of its keys in ascending
// order, so that decisions that name the same keys in another order cannot
// deadlock. The times of a key never go backward. A decision on known keys
// allocates nothing, as long as it has no more than four charges; refusals and
// looks (cost 0) never store anything.
//
// The clock is the wall clock at [New] plus the monotonic time since. It
// ignores corrections of the wall clock. Where the system's monotonic clock
// stops while the machine is suspended, as on Linux, quotas stand still too.
//
// A key takes about 140 bytes, and beside these its own bytes and those of its
// state: 8 for each unit of the most that a [core.SlidingLog] has held, in
// powers of two, and 24 for each lease of [core.Concurrency]. Keys whose quota is whole again are forgotten as new keys
// come, a few at each, so that the keys in memory are at most about twice those
// that were live at once, and a few hundred.
//
// There are at most [Options.MaxKeys] of them. A key that is not whole is never
// forgotten for another: a flood of random keys would free whoever is at a
// limit. Instead, new keys for which there is no room share cells, one for each
// 256th of the keys of a rule, that have the quota of one key. So no key ever
// gets more than its quota. Known keys do not notice. New ones may be refused
// early, while there is no room, and for a window after it: a key that may have
// taken from a cell cannot leave it with an empty quota. Such decisions have
// the mode [core.ModeOverflow]. A program with very many rules may have no memory
// even for a cell, or for a rule that all requests share; then a new key is
// refused, and told to come again in a second.
//
// What it gives up: a restart forgets everything, and admits anew. The cap
// counts keys, not units: a log of a large limit is large. A
// [core.FixedWindow] that begins with the first unit begins, in a cell, with
// the first unit of all who share it: where a key comes to a cell, parts of
// three windows may lie within the length of one, not of two. And a bucket or
// queue whose rate or burst changes, or a rule whose window does, has new
// cells.
type Store struct {
	shards    [shards]shard // first, and so aligned to cache lines
	seed      maphash.Seed
	now       func() int64 // microseconds
	room      int          // entries of keys in a shard
	monotonic bool         // the clock does not step back, as others may
}

var _ core.Store = (*Store)(nil)

const (
	shardBits    = 8
	keyShards    = 1 << shardBits
	sharedShards = 64
	shards       = keyShards + sharedShards
	cacheLine    = 64
)

// A shard is a part of the keys under one lock, on a cache line of its own, so
// that cores that work on different shards do not contend.
type shard struct {
	mu     sync.Mutex
	last   int64 // the time of its last decision; a later one is not dated before
	shared int64 // until when any of its cells is shared: see entry.shared
	keys   table // to here a cache line, which is all that known keys need
	cells  table // see overflow.go
	_      [cacheLine - (unsafe.Sizeof(sync.Mutex{})+2*unsafe.Sizeof(int64(0))+2*unsafe.Sizeof(table{}))%cacheLine]byte
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

// Take implements [core.Store]. Its errors are those of
// [core.ValidateCharges] and of a context that was done before the call; with
// either, nothing was taken. It waits for nothing but the locks of its keys'
// shards, each held for one decision.
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := core.ValidateCharges(charges); err != nil {
		return core.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	var few [4]found // most policies have few rules; these need no allocation
	keys := few[:]
	if len(charges) > len(few) {
		keys = make([]found, len(charges))
	}
	keys = keys[:len(charges)]
	for i := range charges {
		hash := s.hash(policy, &charges[i])
		keys[i].hash, keys[i].shard = hash, shardOf(hash, charges[i].Key)
	}
	now := s.lock(keys)
	defer s.unlock(keys) // deferred: a recovered panic must not leave a shard locked
	for i := range keys {
		k := &keys[i]
		k.entry = s.shards[k.shard].keys.find(k.hash, policy, &charges[i])
	}
	var fewStates [len(few)]core.State
	states := fewStates[:0]
	overflow := false
	for i := range keys {
		k := &keys[i]
		if e := k.entry; e != nil && e.shared <= now {
			states = append(states, e.state)
		} else {
			k.quotas = s.place(keys, i, policy, &charges[i], now)
			overflow = overflow || k.quotas != core.OwnQuota
			states = append(states, k.state())
		}
	}
	if overflow {
		return s.overflow(now, policy, charges, keys, states), nil
	}
	d := core.Decide(now, charges, states)
	known := true
	for i := range keys {
		e := keys[i].entry
		e.prolong()
		known = known && e.known
	}
	if !known {
		s.keep(now, policy, charges, keys)
	}
	return d, nil
}

// keep inserts those entries that are new and not whole. Not
// before all are prolonged, since an insertion forgets others by their expiry.
func (s *Store) keep(now int64, policy string, charges []core.Charge, keys []found) {
	for i := range keys {
		k := &keys[i]
		switch {
		case k.entry == nil || k.entry.known:
		case k.entry.expires <= now:
			newcomers.Put(k.entry)
		case k.entry.cell:
			cell := cellOf(&charges[i])
			k.entry.name(s.hashCell(policy, &cell), policy, &cell)
			s.shards[k.shard].cells.insert(k.entry, now)
		default:
			k.entry.name(k.hash, policy, &charges[i])
			shard := &s.shards[k.shard]
			shard.keys.insert(k.entry, now)
			shard.cells.sweep(now)
		}
	}
}

// found is where the key of a charge is: its entry, or the cell in its place,
// or nil if there is no memory for either.
type found struct {
	hash   uint64
	shard  int
	entry  *entry
	quotas core.Overflow // by which it is decided
}

// An id tells keys apart.
type id struct{ policy, rule, key string }

func (s *Store) hash(policy string, c *core.Charge) uint64 {
	return maphash.Comparable(s.seed, id{policy, c.Rule, c.Key})
}

// shardOf returns the number of the shard of a key. Keys that all requests
// share are empty, and have shards of their own, which are locked last and so
// for the shortest time.
func shardOf(hash uint64, key string) int {
	if key == "" {
		return keyShards + int(hash%sharedShards)
	}
	return int(hash % keyShards)
}

// next returns the lowest shard of keys that is above at, or the number of
// shards: all decisions lock in this order.
func next(keys []found, at int) int {
	lowest := shards
	for i := range keys {
		if k := keys[i].shard; k > at && k < lowest {
			lowest = k
		}
	}
	return lowest
}

// lock locks the shards of keys, and returns the time.
func (s *Store) lock(keys []found) (now int64) {
	now = s.now() // before the locks, to hold them for less: see shard.last
	for at := next(keys, -1); at < shards; at = next(keys, at) {
		shard := &s.shards[at]
		shard.mu.Lock()
		if s.monotonic {
			now = max(now, shard.last)
		}
	}
	for i := range keys {
		s.shards[keys[i].shard].last = now
	}
	return now
}

func (s *Store) unlock(keys []found) {
	for at := next(keys, -1); at < shards; at = next(keys, at) {
		s.shards[at].mu.Unlock()
	}
}
