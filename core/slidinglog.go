package core

// A Log is the state of the [SlidingLog] algorithm: the times of the units
// admitted within the last window, oldest first.
//
// It promises that in any window of the quota's length, half open, at most
// Limit units are admitted: a unit admitted at t counts at every time before
// t + Window and no longer. Refusals cost nothing. What it gives up is memory:
// one entry a unit, up to the limit.
//
// When the clock steps back, entries ahead of now are dated now. They then
// count for a whole window from now, so that the step neither admits more nor
// locks anyone out for longer than a window.
//
// The method is the sliding window log, as in "An alternative approach to rate
// limiting" (Figma, 2017) and, on a Redis sorted set, in "Better rate limiting
// with Redis sorted sets" (ClassDojo, 2015), with refusals that leave no entry.
type Log struct {
	ring []int64 // times; ring[(head+i) % len(ring)] is the i-th oldest
	head int
	size int // times in the ring
	gone int // the oldest of them, which had left the window when last asked
}

func (l *Log) at(i int) int64 {
	i += l.head
	if i >= len(l.ring) {
		i -= len(l.ring)
	}
	return l.ring[i]
}

// live returns how many units count.
func (l *Log) live() int64 { return int64(l.size - l.gone) }

// Advance finds what has left the window, and dates what lies ahead of now
// now. It drops nothing as long as the clock goes forward, so that a decision
// that takes nothing leaves the state as it was.
func (l *Log) Advance(q Quota, now int64) {
	if l.size == 0 {
		return
	}
	redated := false
	for i := l.size - 1; i >= 0 && l.at(i) > now; i-- {
		l.ring[(l.head+i)%len(l.ring)] = now
		redated = true
	}
	if now-l.at(l.size-1) >= q.Window {
		l.gone = l.size
		return
	}
	for l.gone > 0 && now-l.at(l.gone-1) < q.Window {
		l.gone--
	}
	for now-l.at(l.gone) >= q.Window {
		l.gone++
	}
	if redated {
		l.drop()
	}
}

// drop forgets what has left the window.
func (l *Log) drop() {
	l.size -= l.gone
	l.head += l.gone
	if l.head >= len(l.ring) {
		l.head -= len(l.ring)
	}
	l.gone = 0
}

// Fits reports whether cost units fit. A cost of 0 always does.
func (l *Log) Fits(q Quota, cost int64) bool {
	return cost == 0 || cost <= q.Limit-l.live()
}

// Take logs cost units at now.
func (l *Log) Take(q Quota, cost, now int64) {
	if cost == 0 {
		return
	}
	l.drop()
	n := int(cost)
	l.grow(l.size+n, int(q.Limit))
	for ; n > 0; n-- {
		l.ring[(l.head+l.size)%len(l.ring)] = now
		l.size++
	}
}

// grow makes room for n times. It doubles, so that a key that is seldom used
// stays small, but never beyond the limit.
func (l *Log) grow(n, limit int) {
	if n <= len(l.ring) {
		return
	}
	ring := make([]int64, max(n, min(2*len(l.ring), limit)))
	for i := range l.size {
		ring[i] = l.at(i)
	}
	l.ring, l.head = ring, 0
}

// Outcome implements [State].
func (l *Log) Outcome(q Quota, cost, now int64, fits bool) Outcome {
	live := l.live()
	o := Outcome{Fits: fits, Remaining: max(0, q.Limit-live)}
	// leaves is how long the i-th oldest live unit, from 0, still counts.
	leaves := func(i int64) int64 { return l.at(l.gone+int(i)) + q.Window - now }
	if live > 0 {
		o.ResetAfter = leaves(live - 1)
	}
	switch {
	case fits && live > 0:
		// Of a lowered limit, more may be live than it allows.
		o.MoreAfter = leaves(max(0, live-q.Limit))
	case fits:
	case cost > q.Limit:
		o.RetryAfter = Never
	default:
		// It fits once as many units have left as it is short of.
		o.RetryAfter = leaves(live + cost - q.Limit - 1)
	}
	return o
}

// Expires returns when the newest unit leaves the window.
func (l *Log) Expires(q Quota) int64 {
	if l.size == 0 {
		return 0
	}
	return l.at(l.size-1) + q.Window
}
