package memstore

import (
	"strings"
	"sync"
	"unique"
	"unsafe"

	"github.com/routelimit/limit/core"
)

// An entry is one key of one rule, or an overflow quota. It is the beginning of a
// [logEntry] or a [stateEntry], which has its state.
type entry struct {
	next        *entry // in the same bucket
	key         string
	rule        unique.Handle[rule]
	hash        uint32 // see shortHash
	algorithm   core.Algorithm
	kind        kind
	stored      bool  // in a table
	pinned      bool  // in use by a decision, so it must not be dropped
	expires     int64 // from when the state is as good as new
	sharedUntil int64 // until when units in an overflow quota count for the key, or, in an overflow quota, for new keys
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
	entry
	inside core.Log
}

// A stateEntry is an entry of another algorithm.
type stateEntry struct {
	entry
	state core.State
}

// allocate returns an entry without a name. Only this function makes entries,
// since state depends on it.
func allocate(a core.Algorithm, state core.State) *entry {
	if a == core.SlidingLog {
		e := new(logEntry)
		if state != nil {
			e.inside = *state.(*core.Log)
		}
		return &e.entry
	}
	if state == nil {
		state = core.NewState(a)
	}
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
func (e *entry) log() *core.Log { return &(*logEntry)(unsafe.Pointer(e)).inside }

// spare holds entries of each algorithm that are in no table: those for new keys
// whose charges took nothing. It keeps a flood of refusals from allocating.
var spare = make([]sync.Pool, len(core.Algorithms()))

func newEntry(a core.Algorithm) *entry {
	e, ok := spare[a].Get().(*entry)
	if !ok {
		return allocate(a, nil)
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

// name makes e the entry of a charge. It copies the strings, which may be
// slices of a whole request.
func (e *entry) name(hash uint32, c *core.Charge) {
	e.hash = hash
	e.rule = unique.Make(ruleOf(c)) // copies
	e.key = strings.Clone(c.Key)
	e.stored = true
}

// is reports whether e is the entry of a target. It may be that of another algorithm,
// see [Store.turn], unless it is an overflow quota.
func (e *entry) is(k *target) bool {
	c := k.charge
	return e.hash == k.hash && e.key == c.Key && (e.algorithm == c.Quota.Algorithm || e.kind != overflow) &&
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
			as = allocate(a, state)
		}
	case e.algorithm.Alike(a):
		e.algorithm = a
		return e
	default:
		as = &(&stateEntry{state: core.NewTallies(e.algorithm, e.state())}).entry
		as.algorithm = tallied
	}
	a, *as = as.algorithm, *e
	as.algorithm = a
	if e.stored {
		at := s.shards[k.shard].keys.bucket(e.hash)
		for *at != e {
			at = &(*at).next
		}
		*at = as
	}
	k.entry = as
	return as
}
