package waiting

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// A queue is sorted by class and ticket. It exists while it has waiters.
type queue struct {
	id      ID
	next    *queue // of the same quota, for other limits
	rule    int    // the index of the rule in its policy
	waiters []*Waiter
	passed  int // waiters that were admitted before the earliest one, since it was the earliest

	at, left int64 // of the newest decision: when it was made, and what it left
}

func (q *queue) head() *Waiter { return q.waiters[0] }

// find returns where in the queue a waiter is, or belongs.
func (q *queue) find(w *Waiter) int {
	i, _ := slices.BinarySearchFunc(q.waiters, w, (*Waiter).compare)
	return i
}

// compare orders waiters.
func (w *Waiter) compare(other *Waiter) int {
	return cmp.Or(cmp.Compare(w.rank(), other.rank()), cmp.Compare(w.ticket, other.ticket))
}

// rank is the class of w, and less than any if it comes first.
func (w *Waiter) rank() int {
	if w.first {
		return -1
	}
	return int(w.Class)
}

// overtaken notes that w was admitted, and puts the earliest waiter of the queue first
// if enough later ones were admitted before it.
func (q *queue) overtaken(w *Waiter) {
	earliest := q.earliest()
	switch {
	case earliest == nil || earliest.ticket > w.ticket:
		q.passed = 0
		return
	case earliest.Class <= w.Class || earliest.first:
		return // they ask side by side
	}
	if q.passed++; q.passed < Overtakes {
		return
	}
	i := q.find(earliest)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	earliest.first, q.passed = true, 0
	q.waiters = slices.Insert(q.waiters, q.find(earliest), earliest)
	earliest.rouse()
}

// earliest returns the waiter of the queue that came first, or nil. It is the first
// of its class.
func (q *queue) earliest() (earliest *Waiter) {
	for i := 0; i < len(q.waiters); {
		first := q.waiters[i]
		if earliest == nil || first.ticket < earliest.ticket {
			earliest = first
		}
		n, _ := slices.BinarySearchFunc(q.waiters[i:], first.rank(), func(w *Waiter, rank int) int { return cmp.Compare(w.rank(), rank+1) })
		i += n
	}
	return earliest
}

// advance wakes the waiters that may ask now that w has left: the first one, and
// those behind it that fit, as far as the decision d on w tells.
func (s *Queues) advance(q *queue, w *Waiter, d *core.Decision) {
	head := q.head()
	if due := s.poll(q, w.dueOf(head, q.rule, d)); due.After(head.due) {
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

// pollEvery is how often the first waiter of a queue asks for units that may come back at
// any time.
const pollEvery = 100 * time.Millisecond

// poll returns when the first waiter of q asks, if units should come back at due. The
// times are spread, so that processes do not ask together.
func (s *Queues) poll(q *queue, due time.Time) time.Time {
	if !q.id.AnyTime {
		return due
	}
	every := max(pollEvery, time.Duration(s.polled)*time.Second/time.Duration(max(1, s.Polls)))
	if next := time.Now().Add(every*3/4 + rand.N(every/2)); next.Before(due) {
		return next
	}
	return due
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
		key := next.ids[rule].Key
		if key == w.ids[rule].Key {
			if claimed[rule] += next.Cost; claimed[rule]+next.ids[rule].Reserve > o.Remaining {
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
	case next.Cost+next.ids[rule].Reserve <= o.Remaining:
	case o.Fits():
		return time.Now().Add(core.Duration(o.MoreAfter))
	case next.Cost >= w.Cost:
		return time.Now().Add(core.Duration(o.RetryAfter))
	}
	return time.Time{}
}
