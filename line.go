package limit

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// lines keep those who wait in [Limiter.Wait] in the order in which they came.
// There is a line for each key of a rule that refuses somebody now, and who
// waits stands in one of them: that of the key that refuses for longest. So
// nobody waits behind one who waits for a key that both do not share. Only the
// first of a line has a timer and asks the store.
//
// Before it asks, it looks at its other keys: where somebody who came earlier
// stands in line for one, it goes there, and keeps its place by its ticket.
// Nobody can wait in a circle, since the earliest of all goes to no other line.
type lines struct {
	came    atomic.Uint64 // tickets given out
	waiting atomic.Int64  // who stand in a line

	mu sync.Mutex
	of map[lineID]*line
}

type lineID struct{ policy, rule, key string }

// A line is a heap of waiters by their tickets. It exists while somebody
// stands in it.
type line struct {
	id      lineID
	rule    int // the index of the rule in its policy
	waiters []*waiter
}

// A place is where a waiter stands, and what it knows. Others change due and
// index, under the lock of the lines.
type place struct {
	ticket uint64
	cost   int64
	ids    []lineID // for each rule, the line of its key
	wake   chan struct{}

	line  *line // nil if it stands in none
	index int
	due   time.Time // it cannot be admitted before
}

func (l *line) head() *waiter { return l.waiters[0] }

// Len, Less, Swap, Push and Pop implement [heap.Interface].
func (l *line) Len() int           { return len(l.waiters) }
func (l *line) Less(i, j int) bool { return l.waiters[i].ticket < l.waiters[j].ticket }
func (l *line) Swap(i, j int) {
	l.waiters[i], l.waiters[j] = l.waiters[j], l.waiters[i]
	l.waiters[i].index, l.waiters[j].index = i, j
}
func (l *line) Push(w any) {
	w.(*waiter).index = len(l.waiters)
	l.waiters = append(l.waiters, w.(*waiter))
}
func (l *line) Pop() any {
	last := len(l.waiters) - 1
	w := l.waiters[last]
	l.waiters[last] = nil
	l.waiters = l.waiters[:last]
	return w
}

// next returns the earliest time at which w may be admitted, as far as it is
// known, and whether it has the word then: otherwise it stands behind others,
// and sleeps until it is woken.
func (s *lines) next(w *waiter) (due time.Time, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.line == nil || w.line.head() == w && !w.due.After(time.Now()) {
		ahead := s.ahead(w)
		if ahead == nil {
			return w.due, true
		}
		s.remove(w, nil)
		s.join(w, ahead)
	}
	head := w.line.head()
	switch {
	case head == w:
		return w.due, true
	case w.cost < head.cost:
		return time.Time{}, false // it may fit sooner, should the head give up
	}
	return head.due, false
}

// ahead returns a line for one of the keys of w in which somebody stands who
// came earlier, or nil.
func (s *lines) ahead(w *waiter) *line {
	for i := range w.ids {
		if l := s.of[w.ids[i]]; l != nil && l != w.line && l.head().ticket < w.ticket {
			return l
		}
	}
	return nil
}

// stand puts w, which has been refused by d, into the line of the key that
// refuses for longest.
func (s *lines) stand(w *waiter, d *core.Decision, due time.Time) {
	rule, longest := 0, int64(0)
	for i, o := range d.Outcomes() {
		if o.RetryAfter > longest {
			rule, longest = i, o.RetryAfter
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.due = due
	if w.line != nil && w.line.id == w.ids[rule] {
		return
	}
	s.remove(w, d)
	l := s.of[w.ids[rule]]
	if l == nil {
		l = &line{id: w.ids[rule], rule: rule}
		if s.of == nil {
			s.of = make(map[lineID]*line)
		}
		s.of[l.id] = l
	}
	s.join(w, l)
}

// leave takes w out of its line, if it stands in one. What the store last
// told it, which may be nothing, says when the next one may try.
func (s *lines) leave(w *waiter, d *core.Decision) {
	if w.line == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(w, d)
}

func (s *lines) join(w *waiter, l *line) {
	w.line = l
	heap.Push(l, w)
	s.waiting.Add(1)
}

func (s *lines) remove(w *waiter, d *core.Decision) {
	l := w.line
	if l == nil {
		return
	}
	first := l.head() == w
	heap.Remove(l, w.index)
	w.line = nil
	s.waiting.Add(-1)
	if l.Len() == 0 {
		delete(s.of, l.id)
		return
	}
	if !first {
		return
	}
	head := l.head()
	if due := w.dueOf(head, l.rule, d); due.After(head.due) {
		head.due = due
	}
	select {
	case head.wake <- struct{}{}:
	default: // it has not yet seen that it was woken before
	}
}

// dueOf returns the earliest time at which next, of the same line, may be
// admitted, as far as w knows, which stood in front of it: by what the store
// has just told it, or by the time that it was waiting for.
func (w *waiter) dueOf(next *waiter, rule int, d *core.Decision) time.Time {
	if d == nil {
		if next.cost >= w.cost {
			return w.due
		}
		return time.Time{}
	}
	o := d.Outcomes()[rule]
	switch {
	case next.cost <= o.Remaining:
	case o.Fits():
		return time.Now().Add(micros(o.MoreAfter))
	case next.cost >= w.cost:
		return time.Now().Add(micros(o.RetryAfter))
	}
	return time.Time{}
}
