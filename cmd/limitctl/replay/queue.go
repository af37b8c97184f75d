package replay

import (
	"cmp"
	"slices"
)

// An event is a request of the log, without the line that it was read from.
type event struct {
	time   int64 // microseconds
	client *client
	user   string
	agent  string
	place  *place
	route  int // of place, as it was known then
	moved  bool
	query  string
	fields map[string]string // see Record.Fields
}

// A queue sorts events by time, as long as no event is more than late lines behind one
// of a later time. It holds twice as many events, and decides the first half once it is full.
type queue struct {
	late   int
	events []event
	decide func(*event)
}

func (q *queue) add(e *event) {
	if q.events = append(q.events, *e); len(q.events) >= 2*q.late {
		q.first(max(1, q.late))
	}
}

// first decides the first n events.
func (q *queue) first(n int) {
	slices.SortStableFunc(q.events, func(a, b event) int { return cmp.Compare(a.time, b.time) })
	for i := range q.events[:n] {
		q.decide(&q.events[i])
	}
	q.events = slices.Delete(q.events, 0, n)
}

func (q *queue) end() { q.first(len(q.events)) }
