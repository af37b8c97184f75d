package memstore

import (
	"strings"
	"sync"
	"unique"
	"unsafe"

	"github.com/routelimit/limit/core"
)

// An entry is one key of one rule, or an overflow quota. It is the beginning of a
// [shortEntry] or a [longEntry], and that of a [logEntry] or another one, which has its state.
type entry struct {
	next        *entry // in the same bucket
	rule        unique.Handle[rule]
	expires     int64  // from when the state is as good as new
	sharedUntil int64  // until when units in an overflow quota count for the key, or, in an overflow quota, for new keys
	hash        uint32 // see place
	algorithm   core.Algorithm
	kind        kind
	short       bool // whether it is a shortEntry
	flags       flags
}

// flags say where an entry is.
type flags uint8

const (
	stored flags = 1 << iota // in a table
	pinned                   // in use by a decision, so it must not be dropped
)

func (e *entry) has(f flags) bool { return e.flags&f != 0 }

// A shortEntry has its key inside: a new key needs one allocation, and finding it one cache miss
// less. IPv4 addresses are short.
type shortEntry struct {
	entry
	text   [maxShort]byte
	length uint8
}

const maxShort = 15

// A longEntry has another key.
type longEntry struct {
	entry
	key string
}

// key returns the key, which belongs to e.
func (e *entry) key() string {
	if !e.short {
		return (*longEntry)(unsafe.Pointer(e)).key
	}
	s := (*shortEntry)(unsafe.Pointer(e))
	return unsafe.String(&s.text[0], s.length)
}

// setKey copies a key, which may be a slice of a whole request.
func (e *entry) setKey(key string) {
	if !e.short {
		(*longEntry)(unsafe.Pointer(e)).key = strings.Clone(key)
		return
	}
	s := (*shortEntry)(unsafe.Pointer(e))
	s.length = uint8(copy(s.text[:], key))
}

// A kind says whose state an entry has.
type kind uint8

const (
	ofKey    kind = iota
	copied        // of a key, and began with a copy of the state of an overflow quota
	overflow      // of an overflow quota: see overflow.go
)

// A logEntry is an entry of the default algorithm. Its state is part of it: one
// allocation and fewer cache misses for each key, and no interface value.
type logEntry struct {
	shortEntry
	inside core.Log
}

// A longLogEntry is a logEntry with a long key.
type longLogEntry struct {
	longEntry
	inside core.Log
}

// A stateEntry is an entry of another algorithm.
type stateEntry struct {
	longEntry
	state core.State
}

// allocate returns an entry for a key, but without its name. Only this function and turn make
// entries, since state depends on it.
func allocate(a core.Algorithm, key string, state core.State) *entry {
	if a != core.SlidingLog {
		if state == nil {
			state = core.NewState(a)
		}
		return newState(a, state)
	}
	var e *entry
	if len(key) <= maxShort {
		e = &new(logEntry).entry
		e.short = true
	} else {
		e = &new(longLogEntry).entry
	}
	if state != nil {
		*e.log() = *state.(*core.Log)
	}
	return e
}

func newState(a core.Algorithm, state core.State) *entry {
	e := &stateEntry{state: state}
	e.algorithm = a
	return &e.entry
}

// state returns the state of the key.
func (e *entry) state() core.State {
	if e.algorithm == core.SlidingLog {
		return e.log()
	}
	return (*stateEntry)(unsafe.Pointer(e)).state
}

// log returns the state of a key of the default algorithm.
func (e *entry) log() *core.Log {
	if !e.short {
		return &(*longLogEntry)(unsafe.Pointer(e)).inside
	}
	return &(*logEntry)(unsafe.Pointer(e)).inside
}

// spares holds entries of each algorithm that are in no table: those for new keys
// whose charges took nothing. It keeps a flood of refusals from allocating.
var spares = make([][2]sync.Pool, len(core.Algorithms()))

// spare returns the spares of an algorithm for short keys, or for others.
func spare(a core.Algorithm, short bool) *sync.Pool {
	if short {
		return &spares[a][0]
	}
	return &spares[a][1]
}

func newEntry(c *core.Charge) *entry {
	a := c.Quota.Algorithm
	e, ok := spare(a, a == core.SlidingLog && len(c.Key) <= maxShort).Get().(*entry)
	if !ok {
		return allocate(a, c.Key, nil)
	}
	e.expires, e.sharedUntil, e.kind = 0, 0, ofKey
	return e
}

// prolong brings the expiry up to date. A longer window that the rule had before
// still counts.
func (e *entry) prolong() {
	if e.algorithm == core.SlidingLog { // a direct call
		e.expires = max(e.expires, e.log().Expires())
		return
	}
	e.expires = max(e.expires, e.state().Expires())
}

// name makes e the entry of a charge.
func (e *entry) name(hash uint32, c *core.Charge) {
	e.hash = hash
	e.rule = unique.Make(ruleOf(c)) // copies
	e.setKey(c.Key)
	e.flags |= stored
}

// is reports whether e is the entry of a target. It may be that of another algorithm,
// see [Store.turn], unless it is an overflow quota.
func (e *entry) is(k *target) bool {
	c := k.charge
	return e.hash == k.hash && e.key() == c.Key && (e.algorithm == c.Quota.Algorithm || e.kind != overflow) &&
		(k.name != nil && e.rule == k.name.handle || k.name == nil && e.rule.Value() == ruleOf(c))
}

// tallied is the algorithm of an entry that several algorithms charge, or did of late.
const tallied core.Algorithm = 255

// turned returns the entry of a target, if it has one, for the algorithm of its charge.
func (s *Store) turned(k *target) *entry {
	if k.entry == nil || k.entry.algorithm == k.charge.Quota.Algorithm {
		return k.entry
	}
	return s.turn(k)
}

// turn returns the entry of a target whose algorithm is not that of the charge. It may be
// another one then, which replaces it.
func (s *Store) turn(k *target) *entry {
	e, a := k.entry, k.charge.Quota.Algorithm
	var as *entry
	switch {
	case e.algorithm == tallied:
		if only, state := e.state().(*core.Tallies).Only(); state == nil || !only.Alike(a) {
			return e
		} else {
			as = allocate(a, e.key(), state)
		}
	case e.algorithm.Alike(a):
		e.algorithm = a
		return e
	default:
		as = newState(tallied, core.NewTallies(e.algorithm, e.state()))
	}
	a, short := as.algorithm, as.short
	*as = *e
	as.algorithm, as.short = a, short
	as.setKey(e.key())
	if e.has(stored) {
		at := s.shards[k.shard].keys.bucket(e.hash)
		for *at != e {
			at = &(*at).next
		}
		*at = as
	}
	k.entry = as
	return as
}
