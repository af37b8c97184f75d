package core

// FixedWindow admits at most Limit units in each of its windows. It keeps two
// numbers.
//
// The window of a key begins with its first unit. If the quota is Aligned,
// windows begin at multiples of their length since the epoch. With a Calendar
// they are the hours, days, weeks or months of a time zone.
//
// Trade-off: a client can use one limit at the end of a window and another at
// the beginning of the next, which is twice the limit within a short time.
//
// When the clock steps back before the window, the window begins anew with what
// has been spent in it.
const FixedWindow Algorithm = 1

// A windowState is a count and the time at which its window began.
type windowState struct {
	Base
	start, count int64 // of the window that was last taken from

	// of the last Advance
	limit, now, from, until, used int64
}

func (w *windowState) Advance(q *Quota, now int64) int64 {
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

func (w *windowState) Take(n int64, _ uint64) (room, delay int64) {
	w.used += n
	w.start, w.count = w.from, w.used
	return w.limit - w.used, 0
}

// Owe implements [State]: the units count if that time is in the window of now. A window
// of the key's own begins then, unless it began already: units from less than a Window
// ago count in it even if it began later.
func (w *windowState) Owe(q *Quota, n, at int64, _ uint64) {
	if q.anchored() && w.used == 0 {
		w.from, w.until = at, at+q.Window
	}
	if w.now >= w.until || at < w.from && (!q.anchored() || w.now-at >= q.Window) {
		return
	}
	w.start, w.count = w.from, w.used+min(n, MaxCost-w.used)
}

func (w *windowState) Used() int64 { return w.used }

// After implements [State]: all units come back together.
func (w *windowState) After(int64) int64 { return w.until - w.now }

func (w *windowState) Expires() int64 {
	if w.used == 0 { // or its window has passed
		return 0
	}
	return w.until
}

// Return implements [State], while the window is that of At.
func (w *windowState) Return(r *Return, now int64) int64 {
	from, until := w.start, w.start+r.Quota.Window
	if !r.Quota.anchored() {
		from, until = r.Quota.period(now)
	}
	if w.start != from || r.At < from || r.At > now || now >= until {
		return 0
	}
	given := min(r.Cost, w.count)
	w.count -= given
	return given
}

func (w *windowState) Clone() State {
	copied := *w
	return &copied
}
