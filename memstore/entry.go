package memstore

import (
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/routelimit/limit/core"
)

// A rule names a rule. Rules are few and have many keys, so an entry holds a
// handle in place of the two names.
type rule struct{ policy, name string }

// An entry holds the state of one key of one rule, or that of an overflow quota.
//
// Its name (hash, rule, key, algorithm) does not change once it is in a table, and
// is read without a lock there. So are next and rare. The rest is under the lock
// of the shard.
type entry struct {
	next      atomic.Pointer[entry] // in the same bucket
	hash      uint32                // see shortHash
	algorithm core.Algorithm
	kind      kind
	status    status
	pinned    bool // in use by a decision, so it must not be dropped
	rule      unique.Handle[rule]
	key       string
	expires   int64 // from when the state is as good as new
	rare      atomic.Pointer[rare]
	state     core.State
}

// A kind says whose state an entry has.
type kind uint8

const (
	ofKey    kind = iota
	copied        // of a key, and began with a copy of the state of an overflow quota
	overflow      // of an overflow quota: see overflow.go
)

// A status says whether an entry is in a table.
type status uint8

const (
	unstored status = iota // it has never been in one
	stored
	dropped // it was in one
)

// rare is what few entries have.
type rare struct {
	sharedUntil int64 // see entry.sharedUntil
	refusal     atomic.Pointer[refusal]
	refused     bool // since the key was last admitted
}

// A logEntry is an entry of the default algorithm, with its state: one allocation
// for a key instead of two, and neighbors in memory.
type logEntry struct {
	entry
	log core.Log
}

// spare holds entries of each algorithm that are in no table: those for new keys
// whose charges took nothing. It keeps a flood of refusals from allocating.
var spare = make([]sync.Pool, len(core.Algorithms()))

func newEntry(a core.Algorithm) *entry {
	if e, ok := spare[a].Get().(*entry); ok {
		e.expires, e.kind = 0, ofKey
		e.rare.Store(nil)
		return e
	}
	if a != core.SlidingLog {
		return &entry{state: core.NewState(a), algorithm: a}
	}
	e := new(logEntry)
	e.state = &e.log
	return &e.entry
}

// prolong brings the expiry up to date. A longer window that the rule had before
// still counts.
func (e *entry) prolong() { e.expires = max(e.expires, e.state.Expires()) }

// name makes e the entry of a charge. It copies the strings, which may be
// slices of a whole request.
func (e *entry) name(hash uint64, policy string, c *core.Charge) {
	e.hash = shortHash(hash)
	e.rule = unique.Make(rule{policy, c.Rule}) // copies
	e.key = strings.Clone(c.Key)
}

// shortHash returns the bits of a hash that choose the bucket. The low ones have
// chosen the shard.
func shortHash(hash uint64) uint32 { return uint32(hash >> shardBits) }

// is reports whether e is the entry of a charge. A rule of another algorithm
// is another rule: neither could read the other's state.
func (e *entry) is(hash uint32, policy string, c *core.Charge) bool {
	return e.hash == hash && e.key == c.Key && e.algorithm == c.Quota.Algorithm &&
		e.rule.Value() == rule{policy, c.Rule}
}

// sharedUntil returns until when units in an overflow quota count for the key, or,
// of an overflow quota, for new keys.
func (e *entry) sharedUntil() int64 {
	if r := e.rare.Load(); r != nil {
		return r.sharedUntil
	}
	return 0
}

func (e *entry) shareUntil(at int64) { e.needRare().sharedUntil = at }

func (e *entry) needRare() *rare {
	r := e.rare.Load()
	if r == nil {
		r = new(rare)
		e.rare.Store(r)
	}
	return r
}
