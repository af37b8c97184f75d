package refusals

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

const (
	// MaxKeys is how many keys a [Store] remembers.
	MaxKeys = sets * ways

	sets   = 1 << 12
	ways   = 4
	maxKey = 1 << 10 // bytes of a key that is remembered
)

// A table holds the latest outcomes of keys, each in the set of its hash. A set
// is made for its first outcome.
type table [sets]atomic.Pointer[set]

// seen returns the set of a hash, or nil if it has never had an outcome.
func (t *table) seen(hash uint64) *set { return t[hash%sets].Load() }

func (t *table) set(hash uint64) *set {
	at := &t[hash%sets]
	if s := at.Load(); s != nil {
		return s
	}
	at.CompareAndSwap(nil, new(set))
	return at.Load()
}

// A set holds the latest outcomes of a few keys. A further key displaces one of them: see vacate.
type set struct {
	mu     sync.Mutex // of writers
	hashes [ways]atomic.Uint64

	// Outcomes that are not in the set were answered at this time or before. A
	// call that asked earlier may have been decided before them. Under mu.
	dropped int64

	// Answers of calls that asked before this time may lack units that have come back since. Under
	// mu.
	returned int64

	_     [8]byte // so that a slot is a cache line
	slots [ways]slot
}

// A slot is the place of an outcome in a set. Writers hold the set's lock, and the version is odd
// while they write. Readers take no lock: what they read counts if the version was the same before
// and after.
type slot struct {
	version   atomic.Uint64
	key       atomic.Pointer[key] // nil if the slot is free
	asked     atomic.Int64
	answered  atomic.Int64
	at        atomic.Int64
	remaining atomic.Int64
	more      atomic.Int64
	reset     atomic.Int64
}

// A key is what an outcome is about. It does not change, except for its mark.
type key struct {
	policy  string
	rule    string
	variant string
	text    string
	quota   core.Quota

	refused atomic.Bool // since vacate last looked, a request with the key was refused from memory
}

func (k *key) is(c *core.Charge) bool {
	return k.text == c.Key && k.rule == c.Rule && k.variant == c.Variant && k.policy == c.Policy
}

// mark notes that the key is of use.
func (k *key) mark() {
	if !k.refused.Load() { // a write would take the cache line from other processors
		k.refused.Store(true)
	}
}

// An outcome is what the store said about a key, in terms of one unit.
type outcome struct {
	asked, answered int64 // when, by the clock of the Store
	at              int64 // when the store decided, by its own clock

	remaining int64
	more      int64 // after that, remaining grows; 0 if the quota is full
	reset     int64 // after that, the quota is full
}

// read fills in o from the outcome of a charge. It returns false if that does not say when one unit
// fits.
func (o *outcome) read(c *core.Charge, from core.Outcome) bool {
	o.remaining, o.more, o.reset = from.Remaining, from.MoreAfter, from.ResetAfter
	switch {
	case from.Fits():
		return true
	case needs(c) != 1 || c.Reserve > 0:
		return false
	}
	o.more = from.RetryAfter
	return from.RetryAfter != core.Never
}

// write fills in the outcome of a charge at a time from o, and reports whether
// the charge fits. It returns false if the store has to be asked.
func (o *outcome) write(c *core.Charge, now int64, to *core.Outcome) (fits, ok bool) {
	if c.Cost < 0 || c.Reserve < 0 {
		return false, false
	}
	*to = core.Outcome{Remaining: o.remaining, MoreAfter: o.more, ResetAfter: o.reset}
	to.Pass(now - o.answered)
	units := needs(c)
	if units == 0 || to.Need(units+c.Reserve) {
		return true, true
	}
	return false, units == 1 && c.Reserve == 0 && !c.Quota.Identified() && now-o.asked < o.more
}

// needs returns for how many units c needs room: a barred key refuses even a cost of 0.
func needs(c *core.Charge) int64 {
	if c.Quota.Bars() {
		return max(1, c.Cost)
	}
	return c.Cost
}

// after reports whether o replaces what is known.
func (o *outcome) after(known *outcome) bool {
	return o.asked >= known.answered || o.remaining < known.remaining
}

// read returns the outcome in a slot. Writers change it meanwhile, unless the caller holds the
// set's lock.
func (s *slot) read() outcome {
	return outcome{
		asked: s.asked.Load(), answered: s.answered.Load(), at: s.at.Load(),
		remaining: s.remaining.Load(), more: s.more.Load(), reset: s.reset.Load(),
	}
}

// write puts an outcome into a slot, under the set's lock.
func (s *slot) write(k *key, o outcome) {
	s.version.Add(1)
	s.key.Store(k)
	s.asked.Store(o.asked)
	s.answered.Store(o.answered)
	s.at.Store(o.at)
	s.remaining.Store(o.remaining)
	s.more.Store(o.more)
	s.reset.Store(o.reset)
	s.version.Add(1)
}

// load returns the outcome of the key of a charge, and the key, or nil if it is
// not known. A nil set knows none.
func (s *set) load(hash uint64, c *core.Charge, now int64) (o outcome, k *key) {
	if s == nil {
		return o, nil
	}
	for i := range s.hashes {
		if s.hashes[i].Load() != hash {
			continue
		}
		slot := &s.slots[i]
		version := slot.version.Load()
		k = slot.key.Load()
		o = slot.read()
		if version%2 != 0 || slot.version.Load() != version {
			s.mu.Lock() // it is being written: a spinning reader could wait for a writer that does not run
			k = slot.key.Load()
			o = slot.read()
			s.mu.Unlock()
		}
		if k != nil && k.is(c) {
			if now-o.asked >= longest || k.quota != c.Quota {
				return o, nil
			}
			return o, k
		}
	}
	return o, nil
}

// has reports whether the set has, or had, a key of a hash.
func (s *set) has(hash uint64) bool {
	for i := 0; i < ways && s != nil; i++ {
		if s.hashes[i].Load() == hash {
			return true
		}
	}
	return false
}

// exhausted reports whether a key of a hash may have nothing left. Most requests have none, and
// need no more of the set. A false answer costs a call of the store.
func (s *set) exhausted(hash uint64) bool {
	for i := 0; i < ways && s != nil; i++ {
		if s.hashes[i].Load() == hash && s.slots[i].remaining.Load() < 1 {
			return true
		}
	}
	return false
}

// find returns the slot of the key of a charge, or nil. The caller holds the lock.
func (s *set) find(hash uint64, c *core.Charge) *slot {
	for i := range s.slots {
		if k := s.slots[i].key.Load(); k != nil && s.hashes[i].Load() == hash && k.is(c) {
			return &s.slots[i]
		}
	}
	return nil
}

// agrees reports whether as many units remain as is known.
func (s *set) agrees(hash uint64, c *core.Charge, remaining int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.find(hash, c)
	return slot != nil && slot.key.Load().quota == c.Quota && slot.remaining.Load() == remaining
}

// store remembers the outcome of a charge, unless it may be older than what is known. Of two calls
// that overlap, either may have been decided first. Then the outcome with less left counts: a key
// with nothing left stays so until its time has passed, and what was taken meanwhile shows in a
// later call.
func (s *set) store(hash uint64, c *core.Charge, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.find(hash, c)
	if o.asked < s.returned {
		if slot != nil && slot.answered.Load() < s.returned-1 {
			s.drop(slot) // another key of the set, which may have less than is known
		}
		return
	}
	if slot != nil {
		k := slot.key.Load()
		if k.quota == c.Quota {
			if known := slot.read(); o.after(&known) {
				slot.write(k, o)
			}
			return
		}
		s.drop(slot)
	}
	if o.asked < s.dropped || len(c.Key) > maxKey {
		s.dropped = max(s.dropped, o.answered)
		return
	}
	i := s.vacate(o.answered)
	s.hashes[i].Store(hash)
	// A copy of the key: the string may be part of a whole request.
	k := &key{policy: c.Policy, rule: c.Rule, variant: c.Variant, text: strings.Clone(c.Key), quota: c.Quota}
	s.slots[i].write(k, o)
}

// giveBack makes o, the outcome of a return, what is known of a key that was known before,
// and disregards calls that are under way.
func (s *set) giveBack(hash uint64, c *core.Charge, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = max(s.returned, o.answered+1)
	s.dropped = max(s.dropped, o.answered+1)
	slot := s.find(hash, c)
	if slot == nil {
		return
	}
	known := slot.read()
	if known.answered >= o.asked || slot.key.Load().quota != c.Quota {
		s.drop(slot) // which of the two came first is not known
		return
	}
	o.at = known.at + o.answered - known.answered
	slot.write(slot.key.Load(), o)
}

// vacate frees a slot and returns its index. A key that requests were refused for
// stays longer than one whose requests the store admits, since only the first
// saves calls. Of equals, the one that was asked for the longest time ago goes.
func (s *set) vacate(now int64) int {
	oldest, of := -1, int64(math.MaxInt64)
	for i := range s.slots {
		slot := &s.slots[i]
		k, asked := slot.key.Load(), slot.asked.Load()
		if k == nil {
			return i
		}
		if asked < of && (!k.refused.Load() || now-asked >= longest) {
			oldest, of = i, asked
		}
	}
	if oldest < 0 { // all have been of use: a second chance for all but one
		for i := range s.slots {
			s.slots[i].key.Load().refused.Store(false)
		}
		return s.vacate(now)
	}
	s.drop(&s.slots[oldest])
	return oldest
}

func (s *set) drop(slot *slot) {
	s.dropped = max(s.dropped, slot.answered.Load())
	slot.write(nil, outcome{})
}

// forget drops the outcome of a key, and those of calls that asked before a time.
func (s *set) forget(hash uint64, c *core.Charge, before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(hash, c); slot != nil {
		s.drop(slot)
	}
	s.dropped = max(s.dropped, before)
}
