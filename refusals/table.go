package refusals

import (
	"sync"

	"github.com/routelimit/limit/core"
)

const (
	// MaxKeys is how many keys a [Store] remembers.
	MaxKeys = sets * ways

	sets   = 1 << 10
	ways   = 4
	maxKey = 1 << 10 // bytes of a key that is remembered
)

// A table holds the latest outcomes of keys, each in the set of its hash.
type table [sets]set

func (t *table) set(hash uint64) *set { return &t[hash%sets] }

// A set holds the latest outcomes of a few keys. A further key displaces the one
// that was asked for the longest time ago.
type set struct {
	mu   sync.Mutex
	keys [ways]*key

	// Outcomes that are not in the set were answered at this time or before. A
	// call that asked earlier may have been decided before them.
	dropped int64
}

// A key is the place of an outcome in a set.
type key struct {
	known  bool
	hash   uint64
	policy string
	rule   string
	text   []byte // a copy: the string may be part of a whole request
	quota  core.Quota
	latest outcome
}

// An outcome is what the store said about a key, in terms of one unit.
type outcome struct {
	asked, answered int64 // when, by the clock of the Store
	at              int64 // when the store decided, by its own clock

	remaining int64
	more      int64 // after that, remaining grows; 0 if the quota is full
	reset     int64 // after that, the quota is full
}

// read fills in o from the outcome of a charge. It returns false if that does not
// say when one unit fits.
func (o *outcome) read(c *core.Charge, from core.Outcome) bool {
	o.remaining, o.more, o.reset = from.Remaining, from.MoreAfter, from.ResetAfter
	switch {
	case from.Fits():
		return true
	case c.Cost != 1:
		return false
	}
	o.more = from.RetryAfter
	return from.RetryAfter != core.Never
}

// write fills in the outcome of a charge at a time from o, and reports whether
// the charge fits. It returns false if the store has to be asked.
func (o *outcome) write(c *core.Charge, now int64, to *core.Outcome) (fits, ok bool) {
	to.Remaining = o.remaining
	to.ResetAfter = later(o.reset, now-o.answered)
	more := later(o.more, now-o.answered)
	switch {
	case c.Cost < 0:
		return false, false
	case c.Cost <= o.remaining || c.Cost == 0:
		to.MoreAfter = more
		return true, true
	case c.Cost != 1 || c.Quota.Algorithm == core.Concurrency || now-o.asked >= o.more:
		return false, false
	}
	to.RetryAfter = more
	return false, true
}

// later returns what is left of a duration, and never 0 unless it was 0: whether
// it is over depends on the time that the answer took.
func later(duration, by int64) int64 {
	if duration == 0 {
		return 0
	}
	return max(1, duration-by)
}

// find returns the place of the key of a charge, or nil.
func (s *set) find(hash uint64, policy string, c *core.Charge) *key {
	for _, k := range s.keys {
		if k != nil && k.known && k.hash == hash && string(k.text) == c.Key && k.rule == c.Rule && k.policy == policy {
			return k
		}
	}
	return nil
}

// load returns the outcome of the key of a charge, if it is known.
func (s *set) load(hash uint64, policy string, c *core.Charge, now int64) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, policy, c)
	if k == nil || now-k.latest.asked >= longest || k.quota != c.Quota {
		return outcome{}, false
	}
	return k.latest, true
}

// agrees reports whether as many units remain as is known.
func (s *set) agrees(hash uint64, policy string, c *core.Charge, remaining int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, policy, c)
	return k != nil && k.quota == c.Quota && k.latest.remaining == remaining
}

// store remembers the outcome of a charge, unless it may be older than what is
// known.
//
// Of two calls that overlap, either may have been decided first. Then the outcome
// with less left counts: a key with nothing left stays so until its time has
// passed, and what was taken meanwhile shows in a later call.
func (s *set) store(hash uint64, policy string, c *core.Charge, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(hash, policy, c)
	switch {
	case k == nil:
		k = s.vacate()
	case k.quota != c.Quota:
		s.drop(k)
	default:
		if o.after(&k.latest) {
			k.latest = o
		}
		return
	}
	if o.asked < s.dropped || len(c.Key) > maxKey {
		s.dropped = max(s.dropped, o.answered)
		return
	}
	k.known, k.hash, k.policy, k.rule, k.quota, k.latest = true, hash, policy, c.Rule, c.Quota, o
	k.text = append(k.text[:0], c.Key...)
}

// after reports whether o replaces what is known.
func (o *outcome) after(known *outcome) bool {
	return o.asked >= known.answered || o.remaining < known.remaining
}

// vacate returns a place that is free, if need be that of the oldest outcome.
func (s *set) vacate() *key {
	oldest := s.keys[0]
	for i, k := range s.keys {
		switch {
		case k == nil:
			s.keys[i] = new(key)
			return s.keys[i]
		case !k.known:
			return k
		case k.latest.asked < oldest.latest.asked:
			oldest = k
		}
	}
	s.drop(oldest)
	return oldest
}

func (s *set) drop(k *key) {
	k.known = false
	s.dropped = max(s.dropped, k.latest.answered)
}

// forget drops the outcome of a key, and those of calls that asked before a time.
func (s *set) forget(hash uint64, policy string, c *core.Charge, before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.find(hash, policy, c); k != nil {
		s.drop(k)
	}
	s.dropped = max(s.dropped, before)
}
