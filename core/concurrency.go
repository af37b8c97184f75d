package core

// Leases is the state of the [Concurrency] algorithm: who holds how many units,
// and until when. Each charge takes a lease of its Cost under the id in its
// Lease, which lives for a Window from when it was taken or last renewed, and
// ends earlier if it is released.
//
// It promises that leases that have not ended hold at most Limit units, exactly
// and over all instances. A holder that dies without releasing gives its units
// back when its leases end. What it gives up: one that is cut off from the store
// for a whole Window, or stands still for as long, loses its lease while it goes
// on. And it costs an entry for each lease.
//
// A refusal tells when enough units come back if nobody renews: in truth that is
// earlier if leases are released, and later if they are renewed. An id that
// takes twice holds both, as one lease once it is renewed.
//
// When the clock steps back, leases that would live for longer than a Window
// from now end after a Window; so do they when the Window is shortened.
//
// The method is the counting semaphore of Dijkstra (1965), with the leases of
// Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for
// distributed file cache consistency" (1989).
type Leases struct {
	held []lease // in the order in which they end
	gone int     // the first of them, which had ended at now
	used int64   // units of the others

	holder uint64 // of what is taken next

	limit, length, now int64 // of the last Advance
}

type lease struct {
	id    uint64
	ends  int64
	units int64
}

// Advance implements [State]. It drops nothing as long as the clock goes
// forward, so that a decision that takes nothing leaves the state as it was.
func (l *Leases) Advance(q *Quota, now int64) int64 {
	l.limit, l.length, l.now = q.Limit, q.Window, now
	redated := false
	for i := len(l.held) - 1; i >= 0 && l.held[i].ends > now+l.length; i-- {
		l.held[i].ends, redated = now+l.length, true
	}
	for l.gone > 0 && l.held[l.gone-1].ends > now {
		l.gone--
		l.used += l.held[l.gone].units
	}
	for l.gone < len(l.held) && l.held[l.gone].ends <= now {
		l.used -= l.held[l.gone].units
		l.gone++
	}
	if redated {
		l.drop()
	}
	return l.limit - l.used
}

// drop forgets what has ended.
func (l *Leases) drop() {
	l.held = append(l.held[:0], l.held[l.gone:]...)
	l.gone = 0
}

// Take implements [State], for the holder that [Decide] has named.
func (l *Leases) Take(n int64) int64 {
	l.drop()
	l.add(l.holder, n)
	return l.limit - l.used
}

// add adds a lease. It ends last, since Advance leaves none that ends later.
func (l *Leases) add(id uint64, units int64) {
	l.held = append(l.held, lease{id, l.now + l.length, units})
	l.used += units
}

// Renew begins the life of a lease anew at now, and reports whether it was held
// until then. One that has ended stays ended.
func (l *Leases) Renew(q *Quota, now int64, id uint64) (held bool) {
	l.Advance(q, now)
	var units int64
	for _, h := range l.held[l.gone:] {
		if h.id == id {
			units += h.units
		}
	}
	if units == 0 {
		return false
	}
	l.remove(id)
	l.add(id, units)
	return true
}

// Release ends a lease. If there is none, it does nothing.
func (l *Leases) Release(q *Quota, now int64, id uint64) {
	l.Advance(q, now)
	for _, h := range l.held {
		if h.id == id {
			l.remove(id)
			return
		}
	}
}

// remove forgets a lease, and what has ended.
func (l *Leases) remove(id uint64) {
	l.drop()
	others := l.held[:0]
	for _, h := range l.held {
		if h.id == id {
			l.used -= h.units
		} else {
			others = append(others, h)
		}
	}
	l.held = others
}

// Used implements [State].
func (l *Leases) Used() int64 { return l.used }

// After implements [State]: the next leases to end must end.
func (l *Leases) After(n int64) int64 {
	i := l.gone
	if n == l.used {
		i = len(l.held) - 1
	}
	for n -= l.held[i].units; n > 0 && i < len(l.held)-1; n -= l.held[i].units {
		i++
	}
	return l.held[i].ends - l.now
}

// Expires implements [State].
func (l *Leases) Expires() int64 {
	if len(l.held) == 0 {
		return 0
	}
	return l.held[len(l.held)-1].ends
}
