package core

import (
	"slices"
	"sort"
)

// Distinct admits at most Limit different values of something in any window, exactly.
// The ID of a charge is the value that it shows; all other units do not matter.
//
// A value that was shown within the Window before fits always. It takes nothing more,
// and its Window begins anew. A new value takes a unit, whatever the Cost, unless that
// is 0. An ID of 0 is no value: the charge fits and takes nothing. A refused request
// shows nothing.
//
// Remaining is how many new values fit. RetryAfter and MoreAfter are until the oldest
// value leaves the window, if it is not shown again.
//
// Trade-off: the state has an entry for each value, and so takes limits up to
// [MaxValues]. Two values with one ID are one value.
//
// When the clock steps back, values ahead of now are dated now.
const Distinct Algorithm = 9

// A distinctState has the values that one key has shown within the last window.
type distinctState struct {
	Base
	values []value // in the order in which they were last shown
	left   int     // how many of the first of them had left the window at now

	limit, window, now int64 // of the last Advance
}

type value struct {
	id    uint64
	at    int64 // when it was last shown
	again bool  // whether it was in the window already
}

// Advance implements [State]. It drops nothing as long as the clock goes forward, so
// that a decision that takes nothing leaves the state as it was.
func (d *distinctState) Advance(q *Quota, now int64) int64 {
	d.limit, d.window, d.now = q.Limit, q.Window, now
	redated := false
	for i := len(d.values) - 1; i >= 0 && d.values[i].at > now; i-- {
		d.values[i].at, redated = now, true
	}
	d.left = sort.Search(len(d.values), func(i int) bool { return now-d.values[i].at < d.window })
	if redated {
		d.drop()
	}
	return d.limit - d.Used()
}

// drop removes the values that have left the window.
func (d *distinctState) drop() {
	d.values = d.values[:copy(d.values, d.values[d.left:])]
	d.left = 0
}

// find returns where a value in the window is, or -1.
func (d *distinctState) find(id uint64) int {
	for i := d.left; i < len(d.values); i++ {
		if d.values[i].id == id {
			return i
		}
	}
	return -1
}

func (d *distinctState) Needs(c *Charge) int64 {
	if c.Cost == 0 || c.ID == 0 || d.find(c.ID) >= 0 {
		return 0
	}
	return 1
}

func (d *distinctState) Take(_ int64, id uint64) (room, delay int64) {
	if id != 0 {
		shown := value{id: id, at: d.now}
		if i := d.find(id); i >= 0 {
			d.values, shown.again = slices.Delete(d.values, i, i+1), true
		}
		d.drop()
		d.values = append(d.values, shown)
	}
	return d.limit - d.Used(), 0
}

// Owe implements [State]: the value was shown at that time. Only the newest Limit values
// are kept: an older one takes a unit again when it is shown again.
func (d *distinctState) Owe(q *Quota, _, at int64, id uint64) {
	if id == 0 || d.now-at >= q.Window {
		return
	}
	shown := value{id: id, at: at}
	if i := d.find(id); i >= 0 {
		shown = value{id: id, at: max(at, d.values[i].at), again: true}
		d.values = slices.Delete(d.values, i, i+1)
	}
	d.drop()
	i := sort.Search(len(d.values), func(i int) bool { return d.values[i].at > shown.at })
	d.values = slices.Insert(d.values, i, shown)
	d.values = d.values[max(0, len(d.values)-int(q.Limit)):]
}

func (d *distinctState) Used() int64 { return int64(len(d.values) - d.left) }

// After implements [State]: the n oldest values must leave.
func (d *distinctState) After(n int64) int64 {
	return d.values[d.left+int(n)-1].at + d.window - d.now
}

func (d *distinctState) Expires() int64 {
	if len(d.values) == 0 {
		return 0
	}
	return d.values[len(d.values)-1].at + d.window
}

// Return implements [State]: a value that was new at At, and has not been shown since,
// is forgotten. A value that was shown before keeps its place.
func (d *distinctState) Return(r *Return, now int64) int64 {
	if r.Cost == 0 || r.At > now || now-r.At >= r.Quota.Window {
		return 0
	}
	i := slices.Index(d.values, value{id: r.ID, at: r.At})
	if i < 0 {
		return 0
	}
	d.values = slices.Delete(d.values, i, i+1)
	if i < d.left {
		d.left--
	}
	return 1
}

func (d *distinctState) Clone() State {
	copied := *d
	copied.values = slices.Clone(d.values)
	return &copied
}
