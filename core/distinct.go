package core

import (
	"slices"
	"sort"
)

// Distinct admits at most Limit different values of something in any window, exactly.
// The ID of a charge is the value that it shows; all other units do not matter.
//
// A value that was shown within the Window before fits always. It takes nothing more, and its
// Window begins anew. A new value takes a unit, whatever the Cost, unless that is 0. An ID of 0 is
// no value: the charge fits and takes nothing. A refused request shows nothing.
//
// Remaining is how many new values fit. RetryAfter and MoreAfter are until the oldest
// value leaves the window, if it is not shown again.
//
// Trade-off: the state has an entry for each value, and so takes limits up to
// [MaxValues]. Two values with one ID are one value.
//
// When the clock steps back, values ahead of now are dated now. Quotas with different
// limits and windows may charge one key in turn, as with [SlidingLog]. A value that one of
// them knew is not given back.
const Distinct Algorithm = 9

// A distinctState has the values of one key within the longest window of its versions.
type distinctState struct {
	usual
	values []value  // in the order in which they were last shown
	kept   versions // which values are kept, if there are any
	left   int      // how many of the first of them had left the window at now

	limit, window, now int64 // of the last Advance
}

type value struct {
	id    uint64
	at    int64 // when it was last shown
	again bool  // whether it was in the longest window already
}

func (d *distinctState) Advance(q *Quota, now int64) int64 {
	d.limit, d.window, d.now = q.Limit, q.Window, now
	redated := false
	for i := len(d.values) - 1; i >= 0 && d.values[i].at > now; i-- {
		d.values[i].at, redated = now, true
	}
	d.left = len(d.values)
	if !d.isNew() {
		d.left = d.until(now - d.window)
	}
	if redated {
		d.keep()
	}
	return d.limit - d.Used()
}

// isNew reports whether no version counts any value.
func (d *distinctState) isNew() bool { return d.Expires() <= d.now }

// until returns how many values were last shown at a time or before.
func (d *distinctState) until(at int64) int {
	return sort.Search(len(d.values), func(i int) bool { return d.values[i].at > at })
}

// keep drops the values that no version counts any more.
func (d *distinctState) keep() {
	if d.isNew() {
		d.values, d.left, d.kept = d.values[:0], 0, 0
	}
	d.kept = d.kept.and(versionOf(d.limit, d.window))
	d.drop(d.until(d.now - d.kept.window()))
}

// drop removes the first values.
func (d *distinctState) drop(n int) {
	d.values = d.values[:copy(d.values, d.values[n:])]
	d.left = max(0, d.left-n)
}

// find returns where a value is behind the first ones, or -1.
func (d *distinctState) find(id uint64, first int) int {
	for i := first; i < len(d.values); i++ {
		if d.values[i].id == id {
			return i
		}
	}
	return -1
}

func (d *distinctState) Needs(c *Charge) int64 {
	if c.Cost == 0 || c.ID == 0 || d.find(c.ID, d.left) >= 0 {
		return 0
	}
	return 1
}

func (d *distinctState) Take(_ int64, id uint64) (room, delay int64) {
	if id != 0 {
		d.keep()
		d.show(value{id: id, at: d.now})
	}
	return d.limit - d.Used(), 0
}

// show puts a value in its place, and keeps as many of the newest as the largest limit.
func (d *distinctState) show(v value) {
	if i := d.find(v.id, 0); i >= 0 {
		v.at, v.again = max(v.at, d.values[i].at), true
		d.values = slices.Delete(d.values, i, i+1)
		if i < d.left {
			d.left--
		}
	}
	d.values = slices.Insert(d.values, d.until(v.at), v)
	d.drop(max(0, len(d.values)-d.kept.limit()))
}

// Owe implements [State]: the value was shown at that time. Only as many of the newest values are
// kept as the largest limit: an older one takes a unit again when it is shown again.
func (d *distinctState) Owe(q *Quota, _, at int64, id uint64, _ bool) {
	longest := q.Window
	if !d.isNew() {
		longest = max(longest, d.kept.window())
	}
	if id == 0 || d.now-at >= longest {
		return
	}
	d.keep()
	d.show(value{id: id, at: at})
}

func (d *distinctState) Used() int64 { return int64(len(d.values) - d.left) }

// After implements [State]: see [Log.After].
func (d *distinctState) After(n int64) int64 {
	return min(d.values[d.left+int(n)-1].at+d.window, d.Expires()) - d.now
}

func (d *distinctState) Expires() int64 {
	if len(d.values) == 0 {
		return 0
	}
	return d.values[len(d.values)-1].at + d.kept.window()
}

// Return implements [State]: a value that was new at At, and has not been shown since,
// is forgotten. A value that was shown before keeps its place.
func (d *distinctState) Return(r *Return, now int64) int64 {
	if r.Cost == 0 || r.At > now || now-r.At >= d.kept.window() {
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
