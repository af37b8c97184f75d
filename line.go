package limit

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// lines keep those who wait in [Limiter.Wait] in the order in which they came.
// There is a line for each key of a rule that refuses somebody now, and who
// waits stands in one of them: that of the key that refuses for longest. So
// nobody waits behind one who waits for a key that both do not share. Only the
// first of a line has a timer. When it is admitted and there is room for more,
// those behind it ask the store side by side, so that the rate of a line is not
// that of one call after the other.
//
// Who asks looks at its other keys before: where somebody who came earlier
// stands in line for one, it goes there, and keeps its place by its ticket.
// Nobody can wait in a circle, since the earliest of all goes to no other line.
type lines struct {
	came    atomic.Uint64 // tickets given out
	waiting atomic.Int64  // who stand in a line

	mu sync.Mutex
	of map[lineID]*line
}

type lineID struct{ policy, rule, key string }

// A line is in the order of the tickets. It exists while somebody stands in it.
type line struct {
	id      lineID
	rule    int // the index of the rule in its policy
	waiters []*waiter

	at, left int64 // of the newest decision: when it was made, and what it left
}

// abreast is how many of a line may ask the store at a time.
const abreast = 16

// A place is where a waiter stands, and what it knows. Others change due and
// free, under the lock of the lines.
type place struct {
	ticket uint64
	cost   int64
	ids    []lineID // for each rule, the line of its key
	wake   chan struct{}

	line *line     // nil if it stands in none
	due  time.Time // it cannot be admitted before
	free bool      // there should be room for it, beside those in front of it
}

func (l *line) head() *waiter { return l.waiters[0] }

// find returns where in the line a ticket is, or belongs.
func (l *line) find(ticket uint64) int {
	i, _ := slices.BinarySearchFunc(l.waiters, ticket, func(w *waiter, ticket uint64) int { return cmp.Compare(w.ticket, ticket) })
	return i
}

// mayAsk reports whether w need not wait for others, but only for its time.
func (w *waiter) mayAsk() bool { return w.free || w.line.head() == w }

// next returns the earliest time at which w may be admitted, as far as it is
// known, and whether it may ask the store then: otherwise it stands behind
// others, and sleeps until it is woken.
func (s *lines) next(w *waiter) (due time.Time, mayAsk bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.line == nil || w.mayAsk() && !w.due.After(time.Now()) {
		ahead := s.ahead(w)
		if ahead == nil {
			return w.due, true
		}
		s.remove(w, nil)
		s.join(w, ahead)
	}
	head := w.line.head()
	switch {
	case w.mayAsk():
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
	w.due, w.free = due, false
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
	l.waiters = slices.Insert(l.waiters, l.find(w.ticket), w)
	s.waiting.Add(1)
}

func (s *lines) remove(w *waiter, d *core.Decision) {
	l := w.line
	if l == nil {
		return
	}
	asked := w.mayAsk()
	if i := l.find(w.ticket); i == 0 {
		l.waiters[0] = nil
		l.waiters = l.waiters[1:] // the usual case, and the others need not move
	} else {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	w.line, w.free = nil, false
	s.waiting.Add(-1)
	switch {
	case len(l.waiters) == 0:
		delete(s.of, l.id)
	case asked:
		l.advance(w, d)
	}
}

// advance wakes those whose turn it is when w has gone: the first, and those
// behind it for whom there is room as far as the decision d on w tells.
func (l *line) advance(w *waiter, d *core.Decision) {
	head := l.head()
	if due := w.dueOf(head, l.rule, d); due.After(head.due) {
		head.due = due
	}
	head.rouse()
	if d == nil || !l.newest(d) {
		return
	}
	now := time.Now()
	var spoken [core.MaxCharges]int64 // for, of the keys of w, by those in front
	for i, next := range l.waiters[:min(abreast, len(l.waiters))] {
		if next.due.After(now) || !next.fits(w, d, &spoken, l.waiters[:i]) {
			return
		}
		if i > 0 && !next.free {
			next.free = true
			next.rouse()
		}
	}
}

// newest reports whether no later decision than d is known. Those of waiters who
// ask side by side come in any order; an older one tells of room that is gone.
func (l *line) newest(d *core.Decision) bool {
	left := d.Outcomes()[l.rule].Remaining
	if d.At < l.at || d.At == l.at && left > l.left {
		return false
	}
	l.at, l.left = d.At, left
	return true
}

// fits reports whether there is room for next beside those in front of it. Of a
// key of w, the decision on w says how much there is; of another, one may ask.
func (next *waiter) fits(w *waiter, d *core.Decision, spoken *[core.MaxCharges]int64, front []*waiter) bool {
	for rule, o := range d.Outcomes() {
		key := next.ids[rule].key
		if key == w.ids[rule].key {
			if spoken[rule] += next.cost; spoken[rule] > o.Remaining {
				return false
			}
			continue
		}
		for _, other := range front {
			if other.ids[rule].key == key {
				return false
			}
		}
	}
	return true
}

// rouse has w look again at whether it may ask.
func (w *waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // it has been told before, and has not looked yet
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
