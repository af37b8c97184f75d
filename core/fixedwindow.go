package core

// A Window is the state of the [FixedWindow] algorithm: a count, and the time
// at which its window began.
//
// It promises at most Limit units in each of its windows, and costs two
// numbers. What it gives up is the edge: a limit's worth at the end of a window
// and another at the beginning of the next are twice the limit, one directly
// after the other.
//
// The window of a key begins with its first unit. If the quota is Aligned,
// windows begin at whole multiples of their length since the epoch, and with a
// Calendar they are the hours, days, weeks or months of a time zone.
//
// When the clock steps back before the beginning of the window, the window
// begins anew with what has been spent in it.
type Window struct {
	start, count int64 // of the window that was last taken from

	// of the last Advance
	limit, now, from, until, used int64
}

// Advance implements [State].
func (w *Window) Advance(q *Quota, now int64) int64 {
	w.limit, w.now, w.used = q.Limit, now, 0
	w.from, w.until = q.period(now)
	if w.count > 0 {
		if q.anchored() && w.start <= now && now < w.start+q.Window {
			w.from, w.until = w.start, w.start+q.Window
		}
		if w.start > w.from { // the clock has stepped back
			w.start = w.from
		}
		if w.start == w.from {
			w.used = w.count
		}
	}
	return w.limit - w.used
}

// Take implements [State].
func (w *Window) Take(n int64) int64 {
	w.used += n
	w.start, w.count = w.from, w.used
	return w.limit - w.used
}

// Used implements [State].
func (w *Window) Used() int64 { return w.used }

// After implements [State]: all units come back together.
func (w *Window) After(int64) int64 { return w.until - w.now }

// Expires implements [State].
func (w *Window) Expires() int64 {
	if w.used == 0 { // or its window has passed
		return 0
	}
	return w.until
}
