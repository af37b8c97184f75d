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
// its order. Waiters cannot wait for each other in a circle, since the first of all
// never moves.
//
// Units of some quotas come back at any time, given back by other processes. The first
// waiter of such a queue asks about every 100 ms, which is all that it costs the store.
//
// Higher classes come first, and the earliest within a class. So that none waits
// forever, the earliest waiter of a queue becomes the first of all classes after it was
// overtaken [Overtakes] times: see [Waiter].Class.
package waiting

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// abreast is how many waiters of one queue may ask the store at a time.
const abreast = 16

// Overtakes is how many waiters of higher classes are admitted before the earliest
// waiter of a queue: after as many, it comes next. Those that ask the store at that
// moment, at most 16, may still come before it.
const Overtakes = 3

// Queues are the queues of one limiter. The zero Queues is empty and ready to
// use. It is safe for concurrent use.
type Queues struct {
	// Requests is how many waiters with Bounds may be in a queue, over all queues.
	Requests int

	// Polls is how often in a second the first waiters of all queues together ask, at
	// most, for units that may come back at any time. If there are more queues, each
	// asks less often.
	Polls int

	tickets atomic.Uint64 // given out
	queued  atomic.Int64  // waiters in a queue

	mu       sync.Mutex
	of       map[Quota]*queue
	requests int // waiters with Bounds in a queue
	polled   int // queues for units that may come back at any time
}

// A Quota names what a rule keeps for a key. Without a Policy, it names nothing.
type Quota struct{ Policy, Rule, Variant, Key string }

// An ID names the quota that a queue waits for, and what the rule allows its waiters.
// Callers with another limit, or that leave other units to higher classes, are in
// another queue: they have room at other times, and must not wait for each other.
type ID struct {
	Quota
	Limit, Reserve int64

	// Rules is a number of the rules that decide the waiter. Decisions of other rules
	// have other outcomes, so they say nothing about the waiters of this queue.
	Rules uint64

	// AnyTime says that units may come back earlier than a decision says.
	AnyTime bool
}

// A Waiter is one caller. The queues change due and free under their lock; the
// rest belongs to the caller.
type Waiter struct {
	Cost int64

	// Class is 0 for the highest class.
	Class uint8

	// Bounds are how many waiters of this class and of higher ones may be in the queue of
	// the key of each rule, this one included. Nil means any number.
	Bounds []int

	ticket uint64
	first  bool          // before all classes, since others have overtaken it
	ids    []ID          // for each rule, the queue of its key
	wake   chan struct{} // has an element when the waiter should look again

	rule  int       // of the queue that it is in, or could not enter
	queue *queue    // nil outside a queue
	due   time.Time // the waiter cannot be admitted before
	free  bool      // there should be room for it beside the waiters before it

	refilled bool // units came back since Next last let it ask
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

// queueOf returns the queue of an id, or nil.
func (s *Queues) queueOf(id *ID) *queue {
	q := s.of[id.Quota]
	for q != nil && q.id != *id {
		q = q.next
	}
	return q
}

// insert makes the queue of an id.
func (s *Queues) insert(id ID, rule int) *queue {
	if s.of == nil {
		s.of = make(map[Quota]*queue)
	}
	if id.AnyTime {
		s.polled++
	}
	q := &queue{id: id, rule: rule, next: s.of[id.Quota]}
	s.of[id.Quota] = q
	return q
}

// drop removes a queue, which has no waiters.
func (s *Queues) drop(q *queue) {
	if q.id.AnyTime {
		s.polled--
	}
	name := q.id.Quota
	first := s.of[name]
	switch {
	case first != q:
		for first.next != q {
			first = first.next
		}
		first.next = q.next
	case q.next != nil:
		s.of[name] = q.next
	default:
		delete(s.of, name)
	}
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
			w.refilled = false
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

// ahead returns a queue for one of the keys of w that a waiter before it is in,
// or nil.
func (s *Queues) ahead(w *Waiter) *queue {
	for i := range w.ids {
		if q := s.queueOf(&w.ids[i]); q != nil && q != w.queue && q.head().compare(w) < 0 {
			return q
		}
	}
	return nil
}

// Join puts w, which the decision d has refused, into the queue of the key that refuses
// for longest. W is certainly refused until one time, and until due unless units come
// back earlier. Join reports whether there was room.
func (s *Queues) Join(w *Waiter, d *core.Decision, certain, due time.Time) bool {
	rule, longest := 0, int64(0)
	for i, o := range d.Outcomes() {
		if o.RetryAfter > longest {
			rule, longest = i, o.RetryAfter
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.free = false
	q := w.queue
	if q == nil || q.id != w.ids[rule] {
		w.due = due
		s.remove(w, d)
		if q = s.queueOf(&w.ids[rule]); q == nil {
			q = s.insert(w.ids[rule], rule)
		}
	}
	if w.due = s.poll(q, due); w.due.Before(certain) {
		w.due = certain
	}
	if w.refilled {
		w.due = time.Time{} // the store may have decided before the units came back
	}
	if w.queue == nil && !s.add(w, q) {
		if len(q.waiters) == 0 {
			s.drop(q)
		}
		return false
	}
	return true
}

// Leave takes w out of its queue, if it is in one. The last decision on w, which
// may be nil, says when the next waiter may ask.
func (s *Queues) Leave(w *Waiter, d *core.Decision) {
	overtakes := w.queue == nil && w.ids != nil && d != nil && d.Allowed
	if w.queue == nil && !overtakes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if overtakes { // it was admitted without waiting, since only lower classes wait
		for i := range w.ids {
			if q := s.queueOf(&w.ids[i]); q != nil {
				q.overtaken(w)
			}
		}
		return
	}
	s.remove(w, d)
}

// Refilled has the first waiter of each queue of a quota ask the store now: units of
// it were given back, earlier than any decision said.
func (s *Queues) Refilled(quota Quota) {
	if s.Len() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for q := s.of[quota]; q != nil; q = q.next {
		head := q.head()
		head.due, head.refilled = time.Time{}, true
		head.rouse()
	}
}

// add reports whether the queue had room for w.
func (s *Queues) add(w *Waiter, q *queue) bool {
	w.rule = q.rule
	place := q.find(w)
	if w.Bounds != nil {
		if s.requests >= s.Requests || place >= w.Bounds[q.rule] {
			return false
		}
		s.requests++
	}
	w.queue = q
	q.waiters = slices.Insert(q.waiters, place, w)
	s.queued.Add(1)
	return true
}

func (s *Queues) remove(w *Waiter, d *core.Decision) {
	q := w.queue
	if q == nil {
		return
	}
	asked := w.mayAsk()
	if i := q.find(w); i == 0 {
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
	if d != nil && d.Allowed {
		q.overtaken(w)
	}
	switch {
	case len(q.waiters) == 0:
		s.drop(q)
	case asked:
		s.advance(q, w, d)
	}
}

// rouse has w look again at whether it may ask.
func (w *Waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // woken already, and not looked yet
	}
}
