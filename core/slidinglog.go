package core

import "slices"

// SlidingLog admits at most Limit units in any window, exactly: a unit admitted
// at t counts at every time before t + Window and no longer. Refusals cost
// nothing.
//
// Trade-off: it keeps one entry for each unit, and so takes limits up to
// [MaxLog].
//
// When the clock steps back, units ahead of now are dated now and count for a
// whole window from there. The step neither admits more nor locks a client out
// for longer than a window.
//
// The method is the sliding window log, as in "An alternative approach to rate
// limiting" (Figma, 2017) and, on a Redis sorted set, in "Better rate limiting
// with Redis sorted sets" (ClassDojo, 2015), but refusals leave no entry.
const SlidingLog Algorithm = 0

// A Log is the [State] of a [SlidingLog]: the times of the units admitted within
// the last window. It is exported for stores that keep it in place, without an
// allocation of its own. The zero Log is that of a new key.
type Log struct {
	Base
	newest int64 // the time of the last unit, if there are any
	times  *ring // all of them, once there were two; a key that is seldom used needs none
	size   int32 // how many
	limit  int32 // of the last Advance

	window, now int64 // of the last Advance
}

// A ring holds times, oldest first.
type ring struct {
	slots []int64 // slots[(head+i) % len(slots)] is the i-th oldest
	head  int32
	left  int32 // how many of the oldest of them had left the window at now
}

// index returns where in the ring the i-th oldest time is.
func (r *ring) index(i int32) int32 {
	i += r.head
	if n := int32(len(r.slots)); i >= n {
		i -= n
	}
	return i
}

// at returns the i-th oldest time.
func (l *Log) at(i int32) int64 {
	if l.times == nil {
		return l.newest
	}
	return l.times.slots[l.times.index(i)]
}

// left returns how many of the oldest units had left the window at now.
func (l *Log) left() int32 {
	switch {
	case l.times != nil:
		return l.times.left
	case l.size > 0 && l.now-l.newest >= l.window:
		return l.size
	}
	return 0
}

// Advance implements [State]. It drops nothing as long as the clock goes
// forward, so that a decision that takes nothing leaves the state as it was.
func (l *Log) Advance(q *Quota, now int64) int64 {
	l.limit, l.window, l.now = int32(q.Limit), q.Window, now
	if l.size > 0 {
		l.age(now)
	}
	return q.Limit - l.Used()
}

// age finds what has left the window.
func (l *Log) age(now int64) {
	redated := l.newest > now
	if redated {
		l.newest = now
	}
	r := l.times
	if r == nil {
		return
	}
	if redated {
		for i := l.size - 1; i >= 0 && l.at(i) > now; i-- {
			r.slots[r.index(i)] = now
		}
	}
	if now-l.newest >= l.window {
		r.left = l.size
		return
	}
	for r.left > 0 && now-l.at(r.left-1) < l.window {
		r.left--
	}
	for now-l.at(r.left) >= l.window {
		r.left++
	}
	if redated {
		l.drop()
	}
}

// drop removes the times that have left the window.
func (l *Log) drop() {
	left := l.left()
	l.size -= left
	if r := l.times; r != nil && left > 0 {
		r.head, r.left = r.index(left), 0
	}
}

// Used implements [State].
func (l *Log) Used() int64 { return int64(l.size - l.left()) }

// Take implements [State].
func (l *Log) Take(n int64, _ uint64) (room, delay int64) {
	l.drop()
	size := l.size + int32(n)
	if l.times != nil || size > 1 {
		l.grow(size)
		for i := l.size; i < size; i++ {
			l.times.slots[l.times.index(i)] = l.now
		}
	}
	l.newest, l.size = l.now, size
	return int64(l.limit - size), 0
}

// grow makes room for n times. It doubles, so that a key that is seldom used
// stays small, but never beyond the limit.
func (l *Log) grow(n int32) {
	room := int32(0)
	if l.times != nil {
		room = int32(len(l.times.slots))
	}
	if n <= room {
		return
	}
	var r *ring
	if n <= fewTimes {
		r = newFew()
	} else {
		r = &ring{slots: make([]int64, max(n, min(2*room, l.limit)))}
	}
	for i := range l.size {
		r.slots[i] = l.at(i)
	}
	l.times = r
}

// fewTimes is how many times the first ring of a key has. It is one allocation.
const fewTimes = 4

func newFew() *ring {
	few := new(struct {
		ring
		slots [fewTimes]int64
	})
	few.ring.slots = few.slots[:]
	return &few.ring
}

// After implements [State]: the n oldest units must leave.
func (l *Log) After(n int64) int64 {
	return l.at(l.left()+int32(n)-1) + l.window - l.now
}

// Expires implements [State].
func (l *Log) Expires() int64 {
	if l.size == 0 {
		return 0
	}
	return l.newest + l.window
}

// Return implements [State]: units dated exactly At leave the log. Units of one
// time cannot be told apart. Units that were dated anew when the clock stepped
// back are not found.
func (l *Log) Return(r *Return, now int64) int64 {
	if r.At > now || now-r.At >= r.Quota.Window {
		return 0
	}
	var given int64
	var kept, left int32
	past := l.left()
	for i := range l.size {
		at := l.at(i)
		if at == r.At && given < r.Cost {
			given++
			continue
		}
		if i < past {
			left++
		}
		if l.times != nil {
			l.times.slots[l.times.index(kept)] = at
		}
		kept++
	}
	l.size = kept
	if l.times != nil {
		l.times.left = left
	}
	if kept > 0 {
		l.newest = l.at(kept - 1)
	}
	return given
}

// Clone implements [State].
func (l *Log) Clone() State {
	copied := *l
	if l.times != nil {
		r := *l.times
		r.slots = slices.Clone(r.slots)
		copied.times = &r
	}
	return &copied
}
