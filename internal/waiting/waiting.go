// Package waiting keeps the callers that wait for a quota in the order in which
// they came.
//
// There is a queue for each key of a rule that currently refuses a waiter. A
// waiter stands in one queue: that of the key that refuses it for longest. So no
// waiter is held up by one that waits for a key they do not share. Only the first
// waiter of a queue has a timer. When it is admitted and there is room for more,
// the waiters behind it ask the store side by side, so that a queue moves faster
// than one call after the other.
//
// Before a waiter asks the store it looks at its other keys: if an earlier waiter
// is queued for one of them, it moves to that queue and keeps its place there by
// its ticket. Waiters cannot wait for each other in a circle, since the earliest
// of all never moves.
package waiting

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// abreast is how many waiters of one queue may ask the store at a time.
const abreast = 16

// Queues are the queues of one limiter. The zero Queues is empty and ready to
// use. It is safe for concurrent use.
type Queues struct {
	// Requests is how many waiters with Bounds may be in a queue, over all queues.
	Requests int

	tickets atomic.Uint64 // given out
	queued  atomic.Int64  // waiters in a queue

	mu       sync.Mutex
	of       map[ID]*queue
	requests int // waiters with Bounds in a queue
}

// An ID names the quota that a queue waits for.
type ID struct{ Policy, Rule, Key string }

// A queue is sorted by ticket. It exists while it has waiters.
type queue struct {
	id      ID
	rule    int // the index of the rule in its policy
	waiters []*Waiter

	at, left int64 // of the newest decision: when it was made, and what it left
}

// A Waiter is one caller. The queues change due and free under their lock; the
// rest belongs to the caller.
type Waiter struct {
	Cost int64

	// Bounds are how many waiters may be in the queue of the key of each rule, this
	// one included. Nil means any number.
	Bounds []int

	ticket uint64
	ids    []ID          // for each rule, the queue of its key
	wake   chan struct{} // has an element when the waiter should look again

	rule  int       // of the queue that it is in, or could not enter
	queue *queue    // nil outside a queue
	due   time.Time // the waiter cannot be admitted before
	free  bool      // there should be room for it beside the waiters before it
}

// Enter gives w its ticket: its place among all waiters.
func (s *Queues) Enter(w *Waiter) { w.ticket = s.tickets.Add(1) }

// Len returns how many callers are in a queue.
func (s *Queues) Len() int64 { return s.queued.Load() }

// Named reports whether w has the names that it needs in a queue: see Name.
func (w *Waiter) Named() bool { return w.ids != nil }

// Name gives w the queues of its rules, in the order of the rules.
func (w *Waiter) Name(ids []ID) {
	w.ids = ids
	w.wake = make(chan struct{}, 1)
}

// Queued reports whether w is in a queue.
func (w *Waiter) Queued() bool { return w.queue != nil }

// Rule returns the index of the rule that w is queued for, or whose queue is full.
func (w *Waiter) Rule() int { return w.rule }

// Wake returns a channel that receives when w should call Next again.
func (w *Waiter) Wake() <-chan struct{} { return w.wake }

func (q *queue) head() *Waiter { return q.waiters[0] }

// find returns where in the queue a ticket is, or belongs.
func (q *queue) find(ticket uint64) int {
	i, _ := slices.BinarySearchFunc(q.waiters, ticket, func(w *Waiter, ticket uint64) int { return cmp.Compare(w.ticket, ticket) })
	return i
}

// mayAsk reports whether w waits only for its time, and for no other waiter.
func (w *Waiter) mayAsk() bool { return w.free || w.queue.head() == w }

// Next returns the earliest time at which w may be admitted, as far as it is
// known, and whether w may ask the store then. Otherwise other waiters come
// first, and w sleeps until it is woken. If w belongs into a queue that is full, it is
// in none after the call, and due is the time that the first one there waits for.
func (s *Queues) Next(w *Waiter) (due time.Time, mayAsk, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.queue == nil || w.mayAsk() && !w.due.After(time.Now()) {
		ahead := s.ahead(w)
		if ahead == nil {
			return w.due, true, false
		}
		s.remove(w, nil)
		if !s.add(w, ahead) {
			return ahead.head().due, false, true
		}
	}
	head := w.queue.head()
	switch {
	case w.mayAsk():
		return w.due, true, false
	case w.Cost < head.Cost:
		return time.Time{}, false, false // it may fit sooner if the head gives up
	}
	return head.due, false, false
}

// ahead returns a queue for one of the keys of w that an earlier waiter is in,
// or nil.
func (s *Queues) ahead(w *Waiter) *queue {
	for i := range w.ids {
		if q := s.of[w.ids[i]]; q != nil && q != w.queue && q.head().ticket < w.ticket {
			return q
		}
	}
	return nil
}

// Join puts w, which the decision d has refused until due, into the queue of the
// key that refuses for longest. It reports whether there was room.
func (s *Queues) Join(w *Waiter, d *core.Decision, due time.Time) bool {
	rule, longest := 0, int64(0)
	for i, o := range d.Outcomes() {
		if o.RetryAfter > longest && !d.Alone(i) {
			rule, longest = i, o.RetryAfter
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.due, w.free = due, false
	if w.queue != nil && w.queue.id == w.ids[rule] {
		return true
	}
	s.remove(w, d)
	q := s.of[w.ids[rule]]
	if q == nil {
		q = &queue{id: w.ids[rule], rule: rule}
		if s.of == nil {
			s.of = make(map[ID]*queue)
		}
		s.of[q.id] = q
	}
	if !s.add(w, q) {
		if len(q.waiters) == 0 {
			delete(s.of, q.id)
		}
		return false
	}
	return true
}

// Leave takes w out of its queue, if it is in one. The last decision on w, which
// may be nil, says when the next waiter may ask.
func (s *Queues) Leave(w *Waiter, d *core.Decision) {
	if w.queue == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(w, d)
}

// Refilled has the first waiter of a queue ask the store now: units of its quota
// were given back, earlier than any decision said.
func (s *Queues) Refilled(id ID) {
	if s.Len() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.of[id]; q != nil {
		q.head().due = time.Time{}
		q.head().rouse()
	}
}

// add reports whether the queue had room for w.
func (s *Queues) add(w *Waiter, q *queue) bool {
	w.rule = q.rule
	if w.Bounds != nil {
		if s.requests >= s.Requests || len(q.waiters) >= w.Bounds[q.rule] {
			return false
		}
		s.requests++
	}
	w.queue = q
	q.waiters = slices.Insert(q.waiters, q.find(w.ticket), w)
	s.queued.Add(1)
	return true
}

func (s *Queues) remove(w *Waiter, d *core.Decision) {
	q := w.queue
	if q == nil {
		return
	}
	asked := w.mayAsk()
	if i := q.find(w.ticket); i == 0 {
		q.waiters[0] = nil
		q.waiters = q.waiters[1:] // the usual case: the others need not move
	} else {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	w.queue, w.free = nil, false
	s.queued.Add(-1)
	if w.Bounds != nil {
		s.requests--
	}
	switch {
	case len(q.waiters) == 0:
		delete(s.of, q.id)
	case asked:
		q.advance(w, d)
	}
}

// advance wakes the waiters that may ask now that w has left: the first one, and
// those behind it that fit, as far as the decision d on w tells.
func (q *queue) advance(w *Waiter, d *core.Decision) {
	head := q.head()
	if due := w.dueOf(head, q.rule, d); due.After(head.due) {
		head.due = due
	}
	head.rouse()
	if d == nil || !q.newest(d) {
		return
	}
	now := time.Now()
	var claimed [core.MaxCharges]int64 // of each key of w, by the waiters in front
	for i, next := range q.waiters[:min(abreast, len(q.waiters))] {
		if next.due.After(now) || !next.fits(w, d, &claimed, q.waiters[:i]) {
			return
		}
		if i > 0 && !next.free {
			next.free = true
			next.rouse()
		}
	}
}

// newest reports whether no later decision than d is known. Waiters that ask
// side by side come in any order, and an older decision reports room that is
// gone.
func (q *queue) newest(d *core.Decision) bool {
	left := d.Outcomes()[q.rule].Remaining
	if d.At < q.at || d.At == q.at && left > q.left {
		return false
	}
	q.at, q.left = d.At, left
	return true
}

// fits reports whether there is room for next beside the waiters in front of it.
// For a key of w, the decision on w says how much room there is; for another
// key, one waiter at a time may ask.
func (next *Waiter) fits(w *Waiter, d *core.Decision, claimed *[core.MaxCharges]int64, front []*Waiter) bool {
	for rule, o := range d.Outcomes() {
		if d.Alone(rule) {
			continue
		}
		key := next.ids[rule].Key
		if key == w.ids[rule].Key {
			if claimed[rule] += next.Cost; claimed[rule] > o.Remaining {
				return false
			}
			continue
		}
		for _, other := range front {
			if other.ids[rule].Key == key {
				return false
			}
		}
	}
	return true
}

// rouse has w look again at whether it may ask.
func (w *Waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // woken already, and not looked yet
	}
}

// dueOf returns the earliest time at which next, of the same queue, may be
// admitted, as far as w knows: from the decision d on w, or from the time that w
// was waiting for.
func (w *Waiter) dueOf(next *Waiter, rule int, d *core.Decision) time.Time {
	if d == nil {
		if next.Cost >= w.Cost {
			return w.due
		}
		return time.Time{}
	}
	o := d.Outcomes()[rule]
	switch {
	case next.Cost <= o.Remaining:
	case o.Fits():
		return time.Now().Add(micros(o.MoreAfter))
	case next.Cost >= w.Cost:
		return time.Now().Add(micros(o.RetryAfter))
	}
	return time.Time{}
}

// micros returns a duration of package core, capped at the longest one.
func micros(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Microsecond
}
