package core

import (
	"slices"
	"sort"
)

// SlidingLog admits at most Limit units in any window, exactly: a unit admitted at t counts at
// every time before t + Window and no longer. Refusals cost nothing.
//
// Trade-off: it keeps one entry for each unit, and so takes limits up to [MaxLog].
//
// When the clock steps back, units ahead of now are dated now and count for a whole window from
// there. The step neither admits more nor locks a client out for longer than a window.
//
// Quotas with different limits and windows may charge one key in turn. Each counts what
// all of them admitted within its own window, since it first charged the key.
//
// The method is the sliding window log, as in "An alternative approach to rate
// limiting" (Figma, 2017) and, on a Redis sorted set, in "Better rate limiting
// with Redis sorted sets" (ClassDojo, 2015), but refusals leave no entry.
const SlidingLog Algorithm = 0

// A Log is the [State] of a [SlidingLog]: the times of the units within the longest window of its
// versions, oldest first. It is exported for stores that embed it. The zero Log is that of a new
// key. Many keys are seldom used, so it is small: a key with one time has no ring, and the ring is
// a pointer to a slice.
type Log struct {
	usual
	ring   *[]int64 // room times; the i-th oldest is at (head+i) % room; nil until there are two
	newest int64    // of the times, if there are any
	kept   versions // which times are kept, if there are any

	// of the last Advance
	quota versions
	now   int64
	left  int32 // how many of the oldest times had left the window at now

	head, size, room int32 // size is how many times there are
}

// slot returns the i-th oldest time, which is newest if there is no ring.
func (l *Log) slot(i int32) *int64 {
	if l.ring == nil {
		return &l.newest
	}
	if i += l.head; i >= l.room {
		i -= l.room
	}
	return &(*l.ring)[i]
}

func (l *Log) at(i int32) int64 { return *l.slot(i) }

// Advance implements [State]. It drops nothing as long as the clock goes forward, so that a
// decision that takes nothing leaves no trace.
func (l *Log) Advance(q *Quota, now int64) int64 {
	if quota := versionOf(q.Limit, q.Window); quota != l.quota || now < l.now {
		l.turn(quota, now)
		return q.Limit - l.Used()
	}
	l.now = now
	switch {
	case l.size == 0:
	case l.isOver():
		l.left = l.size
	default:
		for now-l.at(l.left) >= q.Window {
			l.left++
		}
	}
	return q.Limit - l.Used()
}

// isOver reports whether the quota counts no time, since all have left its window or no version
// counts them.
func (l *Log) isOver() bool { return l.now-l.newest >= min(l.quota.window(), l.kept.window()) }

// turn is Advance by another quota than before, or to a time before the last one.
func (l *Log) turn(quota versions, now int64) {
	l.quota, l.now = quota, now
	if l.size == 0 {
		return
	}
	redated := l.newest > now
	if redated {
		l.newest = now
		for i := l.size - 1; i >= 0 && l.at(i) > now; i-- {
			*l.slot(i) = now
		}
	}
	if l.isOver() {
		l.left = l.size
		return
	}
	l.left = l.older(l.size, quota.window())
	if redated {
		l.keep(0)
	}
}

// older returns how many of the n oldest times have left a window.
func (l *Log) older(n int32, window int64) int32 {
	return int32(sort.Search(int(n), func(i int) bool { return l.now-l.at(int32(i)) < window }))
}

// isNew reports whether no version counts any time.
func (l *Log) isNew() bool { return l.left == l.size && l.Expires() <= l.now }

// keep drops the times that no version counts any more, with room for n more.
func (l *Log) keep(n int32) {
	if l.isNew() {
		l.left, l.size, l.kept = 0, 0, 0
	}
	gone := l.left
	if l.kept != l.quota {
		l.kept = l.kept.and(l.quota)
		if longest := l.kept.window(); longest > l.quota.window() {
			gone = l.older(gone, longest)
		}
	}
	l.drop(max(gone, l.size+n-int32(l.kept.limit())))
}

// drop removes the oldest times.
func (l *Log) drop(n int32) {
	l.size -= n
	if l.ring != nil && n > 0 {
		if l.head += n; l.head >= l.room {
			l.head -= l.room
		}
	}
	l.left = max(0, l.left-n)
}

// Used implements [State].
func (l *Log) Used() int64 { return int64(l.size - l.left) }

// Take implements [State].
func (l *Log) Take(n int64, _ uint64) (room, delay int64) {
	l.keep(int32(n))
	size := l.size + int32(n)
	if size > max(1, l.room) {
		l.grow(size)
	}
	for i := l.size; i < size; i++ {
		*l.slot(i) = l.now
	}
	l.newest, l.size = l.now, size
	return int64(l.quota.limit()) - l.Used(), 0
}

// Owe implements [State]: the units leave the window a Window after that time. As many of the
// newest times are kept as the largest limit; the others change nothing until that is raised.
func (l *Log) Owe(q *Quota, n, at int64, _ uint64, _ bool) {
	longest := q.Window
	if !l.isNew() {
		longest = max(longest, l.kept.window())
	}
	if l.now-at >= longest {
		return
	}
	l.keep(0)
	times := make([]int64, l.size)
	for i := range l.size {
		times[i] = l.at(i)
	}
	later := sort.Search(len(times), func(i int) bool { return times[i] > at })
	times = slices.Insert(times, later, slices.Repeat([]int64{at}, int(min(n, int64(l.kept.limit()))))...)
	times = times[max(0, len(times)-l.kept.limit()):]
	l.list(times)
	l.size, l.left, l.newest = l.room, 0, times[len(times)-1]
}

// grow makes room for n times. It doubles, since many keys are small, up to the largest limit.
func (l *Log) grow(n int32) {
	ring := make([]int64, max(n, min(2*l.room, int32(l.kept.limit()))))
	for i := range l.size {
		ring[i] = l.at(i)
	}
	l.list(ring)
}

// list makes ring that of l, with the oldest time first.
func (l *Log) list(ring []int64) {
	if l.ring == nil {
		l.ring = new([]int64)
	}
	*l.ring, l.room, l.head = ring, int32(len(ring)), 0
}

// After implements [State]: the n oldest units must leave, or the key must be new again,
// which a quota that has not yet taken from it does not put off.
func (l *Log) After(n int64) int64 {
	return min(l.at(l.left+int32(n)-1)+l.quota.window(), l.Expires()) - l.now
}

// Expires implements [State].
func (l *Log) Expires() int64 {
	if l.size == 0 {
		return 0
	}
	return l.newest + l.kept.window()
}

// Return implements [State]: units dated exactly At leave the log. Units of one time cannot be told
// apart. Units that were dated anew when the clock stepped back are not found.
func (l *Log) Return(r *Return, now int64) int64 {
	if r.At > now || now-r.At >= l.kept.window() {
		return 0
	}
	var given int64
	var kept, left int32
	for i := range l.size {
		at := l.at(i)
		if at == r.At && given < r.Cost {
			given++
			continue
		}
		if i < l.left {
			left++
		}
		*l.slot(kept) = at
		kept++
	}
	l.size, l.left = kept, left
	if kept > 0 {
		l.newest = l.at(kept - 1)
	}
	return given
}

// Clone implements [State].
func (l *Log) Clone() State {
	copied := *l
	if l.ring != nil {
		ring := slices.Clone(*l.ring)
		copied.ring = &ring
	}
	return &copied
}
