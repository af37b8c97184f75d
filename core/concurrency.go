package core

import (
	"slices"
	"sort"
)

// Concurrency admits charges while at most Limit units are held at the same time, exactly and over
// all instances. Each charge takes a lease of its Cost under the id in [Charge].ID. A lease ends a
// Window after it was taken or last renewed, or when it is released. If a holder dies without
// releasing, its units come back when the lease ends.
//
// A refusal says when enough units come back if no lease is renewed. They come
// back earlier if leases are released, and later if leases are renewed. If one id
// takes twice, it holds both, as a single lease once it is renewed.
//
// Trade-off: a holder that cannot reach the store for a whole Window, or is
// paused for that long, loses its lease while it goes on. The state has an entry
// for each lease, and so takes limits up to [MaxLeases].
//
// When the clock steps back, leases that would end more than a Window from now
// end after a Window. Quotas with different limits and windows may charge one key in turn:
// a lease lives for the Window of the quota that took or renewed it.
//
// The method is the counting semaphore of Dijkstra (1965), with the leases of Gray and Cheriton,
// "Leases: an efficient fault-tolerant mechanism for distributed file cache consistency" (1989).
const Concurrency Algorithm = 7

// A leasesState holds the leases of one key.
type leasesState struct {
	usual
	held    []lease // in the order in which they end
	longest int64   // how long they live at most
	over    int     // how many of the first of them had ended at now
	used    int64   // units of the others

	limit, length, now int64 // of the last Advance
}

type lease struct {
	id    uint64
	ends  int64
	units int64
}

// Advance implements [State]. It drops nothing as long as the clock goes forward, so that a
// decision that takes nothing leaves no trace.
func (l *leasesState) Advance(q *Quota, now int64) int64 {
	l.limit, l.length, l.now = q.Limit, q.Window, now
	redated := false
	for i := len(l.held) - 1; i >= 0 && l.held[i].ends > now+l.longest; i-- {
		l.held[i].ends, redated = now+l.longest, true
	}
	for l.over > 0 && l.held[l.over-1].ends > now {
		l.over--
		l.used += l.held[l.over].units
	}
	for l.over < len(l.held) && l.held[l.over].ends <= now {
		l.used -= l.held[l.over].units
		l.over++
	}
	if redated {
		l.drop()
	}
	return l.limit - l.used
}

// drop removes the leases that have ended.
func (l *leasesState) drop() {
	l.held = append(l.held[:0], l.held[l.over:]...)
	l.over = 0
}

func (l *leasesState) Take(n int64, id uint64) (room, delay int64) {
	l.keep()
	l.drop()
	l.add(lease{id, l.now + l.length, n})
	return l.limit - l.used, 0
}

// Owe implements [State]: it adopts a lease that began or was last renewed at that time, also above
// the limit, as one of at most Limit units. A lease that is held already has the life that ends
// later. Of more than twice [MaxLeases] units, the leases that end first are forgotten.
func (l *leasesState) Owe(q *Quota, n, at int64, id uint64, _ bool) {
	units, ends := l.of(id)
	if ends = max(ends, at+l.length); ends <= l.now {
		return
	}
	if units == 0 {
		units = min(n, q.Limit)
	}
	l.keep()
	l.remove(id)
	l.add(lease{id, ends, units})
	for l.used > 2*MaxLeases {
		l.used -= l.held[0].units
		l.held = l.held[1:]
	}
}

// keep remembers how long leases live.
func (l *leasesState) keep() {
	if l.used == 0 {
		l.longest = 0
	}
	l.longest = max(l.longest, l.length)
}

// of returns what an id holds, and until when.
func (l *leasesState) of(id uint64) (units, ends int64) {
	for _, h := range l.held[l.over:] {
		if h.id == id {
			units, ends = units+h.units, max(ends, h.ends)
		}
	}
	return units, ends
}

func (l *leasesState) add(one lease) {
	i := sort.Search(len(l.held), func(i int) bool { return l.held[i].ends > one.ends })
	l.held = slices.Insert(l.held, i, one)
	l.used += one.units
}

func (l *leasesState) Renew(q *Quota, now int64, id uint64) (held bool) {
	l.Advance(q, now)
	units, _ := l.of(id)
	if units == 0 {
		return false
	}
	l.keep()
	l.remove(id)
	l.add(lease{id, now + l.length, units})
	return true
}

func (l *leasesState) Release(q *Quota, now int64, id uint64) {
	l.Advance(q, now)
	if slices.ContainsFunc(l.held, func(h lease) bool { return h.id == id }) {
		l.remove(id)
	}
}

// remove removes a lease, and those that have ended.
func (l *leasesState) remove(id uint64) {
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

func (l *leasesState) Used() int64 { return l.used }

// After implements [State]: the next leases to end must end.
func (l *leasesState) After(n int64) int64 {
	i := l.over
	if n == l.used {
		i = len(l.held) - 1
	}
	for n -= l.held[i].units; n > 0 && i < len(l.held)-1; n -= l.held[i].units {
		i++
	}
	return l.held[i].ends - l.now
}

func (l *leasesState) Expires() int64 {
	if len(l.held) == 0 {
		return 0
	}
	return l.held[len(l.held)-1].ends
}

// Return implements [State] and gives nothing back: leases are released.
func (l *leasesState) Return(*Return, int64) int64 { return 0 }

func (l *leasesState) Clone() State {
	copied := *l
	copied.held = slices.Clone(l.held)
	return &copied
}
