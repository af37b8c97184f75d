package core

// FixedWindow admits at most Limit units in each of its windows. It keeps two numbers.
//
// The window of a key begins with its first unit. If the quota is Aligned,
// windows begin at multiples of their length since the epoch. With a Calendar
// they are the hours, days, weeks or months of a time zone.
//
// Trade-off: a client can use one limit at the end of a window and another at
// the beginning of the next, which is twice the limit within a short time.
//
// When the clock steps back before the window, the window begins anew with what
// has been spent in it. What a debt with a MaxDebt takes above the limit counts in the next
// window too, up to one limit.
const FixedWindow Algorithm = 1

// A windowState is a count of units, in the window of the last of them.
type windowState struct {
	cut
	mark  windowMark
	live  bool  // whether the window of the last Advance is that of the count
	end   int64 // of that window
	count int64
	last  int64 // when a unit was taken

	// Of the last Advance. What is above the limit of a window that ended since counts now.
	now, since, until, room int64

	next int64 // when the window after that one ends, if there are grids
}

func (w *windowState) Advance(q *Quota, now int64) int64 {
	if w.grids != nil || !w.cuts(q) {
		turnTo(w, q, now)
	}
	from, until := q.period(now)
	w.place(now, from, until)
	if w.mark.kind() != ownWindows {
		w.since = from
	}
	if w.room = q.Limit; w.live {
		w.room -= w.count
	}
	if w.grids != nil {
		w.room -= w.grids.advance(w, q)
		if w.next = w.until + w.mark.longest(); w.mark.kind() == calendarPeriods {
			_, w.next = q.period(w.until)
		}
	}
	return w.room
}

func (w *windowState) cuts(q *Quota) bool { return w.mark == q.WindowMark() }

func (w *windowState) lay(q *Quota) { w.mark, w.end, w.count, w.last = q.WindowMark(), 0, 0, 0 }

// fill implements [grid]: a window of the key's own began with the last unit.
func (w *windowState) fill(other grid, at int64) {
	w.count, w.last, w.end = other.(*windowState).count, at, at+w.mark.longest()
	if w.mark.kind() == alignedWindows {
		w.end -= at % w.mark.longest()
	}
}

// enter implements [grid]. The calendar is not known here: a period that follows a known
// one is taken to begin now, and to be as long as it can be.
func (w *windowState) enter(now int64) {
	length := w.mark.longest()
	switch from := now; {
	case w.mark.kind() == alignedWindows:
		from -= now % length
		w.place(now, from, from+length)
	case w.mark.kind() == calendarPeriods && now < w.end:
		w.place(now, 0, w.end)
	default:
		w.place(now, now, now+length)
	}
}

// place sets the window of now. That of the key's own may have begun before.
func (w *windowState) place(now, from, until int64) {
	w.now, w.since, w.until = now, now-w.mark.longest()+1, until
	if w.live = w.count > 0; !w.live {
		return
	}
	if w.mark.kind() == ownWindows {
		if w.end > until { // the clock has stepped back
			w.end, w.last = until, now
		}
		if w.live = now < w.end; w.live {
			w.until = w.end
		}
		return
	}
	if w.last >= until { // the clock has stepped back
		w.end, w.last = until, now
	}
	w.live = w.last >= from
}

func (w *windowState) Take(n int64, _ uint64) (room, delay int64) {
	if w.grids != nil {
		charge(w, w.now, n, w.now, false)
	}
	w.add(n)
	return w.room, 0
}

func (w *windowState) add(n int64) {
	w.count = w.counted() + n
	w.end, w.last, w.live = w.until, w.now, true
	w.room -= n
}

func (w *windowState) Refuse(bool) bool { return join(w, w.now) }

// Owe implements [State]: the units count if that time is in the window of now. A window of the
// key's own begins then, unless it began already: it counts units from less than a Window ago.
func (w *windowState) Owe(q *Quota, n, at int64, _ uint64, repaid bool) {
	if repaid && (w.grids == nil || w.grids.forgotten(w, w.now)) && w.owes(q, at, w.now) {
		came := w.now // a store may have forgotten what was taken before
		if w.grids == nil && w.live {
			came = 0
		}
		w.grids = &grids{list: []gridOf{{came: came}}, limit: q.Limit}
	}
	owe(w, q, w.now, n, at, repaid)
}

func (w *windowState) owes(q *Quota, at, now int64) bool {
	length := w.mark.longest()
	switch kind := w.mark.kind(); {
	case q != nil && kind != ownWindows:
		from, _ := q.period(now)
		return at >= from
	case kind == alignedWindows:
		return at >= now-now%length
	}
	return now-at < length
}

func (w *windowState) owe(n, at int64) {
	if w.mark.kind() == ownWindows && !w.live {
		w.until = at + w.mark.longest()
	}
	w.add(min(n, MaxCost-w.counted()))
}

func (w *windowState) Used() int64 {
	if w.grids != nil {
		return w.counted() + w.grids.extra
	}
	return w.counted()
}

// counted returns how many units are in the window of now.
func (w *windowState) counted() int64 {
	if w.live {
		return w.count
	}
	return 0
}

// After implements [State]: all units come back together, but for those above the limit
// that other versions or a debt took: see [grid].
func (w *windowState) After(n int64) int64 {
	if w.grids == nil {
		return w.until - w.now
	}
	if w.grids.own == len(w.grids.list) {
		return sooner(w, w.now, w.until-w.now)
	}
	switch limit := w.grids.list[w.grids.own].limit; {
	case !w.live && w.mark.kind() == ownWindows:
		return w.end + w.mark.longest() - w.now
	case w.live && n > w.Used()-w.above(w.grids.extra, limit):
		return w.next - w.now
	}
	return w.until - w.now
}

func (w *windowState) follows() bool { return w.end >= w.since }

func (w *windowState) above(extra, limit int64) int64 {
	if limit == 0 {
		return 0
	}
	return min(max(0, extra+w.count-limit), limit)
}

func (w *windowState) fits(n, limit int64) bool { return w.counted()+n <= limit }

func (w *windowState) open() bool { return w.live }

func (w *windowState) Expires() int64 {
	if w.grids == nil {
		return w.ends()
	}
	return expires(w)
}

func (w *windowState) ends() int64 {
	if w.count == 0 {
		return 0
	}
	return w.end
}

// lasts implements [grid]: a period may have begun with the last unit.
func (w *windowState) lasts() int64 {
	if w.mark.kind() != calendarPeriods {
		return 0
	}
	return w.last + w.mark.longest()
}

func (w *windowState) taken() int64 { return w.last }
func (w *windowState) span() int64  { return w.mark.longest() }
func (w *windowState) holds() int64 { return w.count }

// Return implements [State], while the window is that of At.
func (w *windowState) Return(r *Return, now int64) int64 { return giveBack(w, r, now) }

func (w *windowState) giveBack(q *Quota, n, at, now int64) int64 {
	from, until := w.end-w.mark.longest(), w.end
	if w.mark.kind() == calendarPeriods {
		if q == nil {
			return 0 // it may have been in another period
		}
		from, until = q.period(now)
	}
	if at < from || at > now || now >= until || w.last < from || w.last >= until {
		return 0
	}
	given := min(n, w.count)
	w.count -= given
	return given
}

// reopen makes an empty window the one before it, with units of which it counts some: a
// window without units cannot be told from none.
func (w *windowState) reopen(q *Quota, count, now int64) {
	w.end -= w.mark.longest()
	if w.mark.kind() == calendarPeriods {
		w.end, _ = q.period(now)
	}
	w.count, w.last = count, w.end-1
}

func (w *windowState) empty() grid     { return &windowState{} }
func (w *windowState) swap(other grid) { exchange(w, other.(*windowState)) }

func (w *windowState) Clone() State {
	copied := *w
	copied.grids = w.grids.clone()
	return &copied
}
