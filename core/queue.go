package core

// A Line is the state of the [Queue] algorithm, a leaky bucket as a queue: the
// requests that are admitted go on one after the other, at Limit a Window.
// Each is told its turn; up to Burst units wait for theirs, for at most MaxWait
// if that is not 0.
//
// It promises that admitted units follow one another by Window/Limit, exactly
// and over all instances, whatever the order in which they were asked for. It
// remembers one time. What it gives up is spare capacity: after a pause units
// come no faster. The turn of a request that goes away passes unused.
//
// When the clock steps back, the line is at most as long as it can be.
//
// The method is the leaky bucket of Turner (1986), as nginx's limit_req and
// uber-go/ratelimit reserve turns in it.
type Line struct {
	schedule

	places, room, maxWait, turn int64 // of the last Advance
}

// Advance implements [State].
func (l *Line) Advance(q *Quota, now int64) int64 {
	l.places, l.maxWait = q.Burst+1, q.MaxWait
	l.schedule.advance(q, now, l.places)
	return l.count()
}

// count counts the places that are free: none if the next turn is too late.
func (l *Line) count() int64 {
	l.room = l.places - l.schedule.units()
	if l.maxWait > 0 && l.schedule.until(0) > l.maxWait {
		l.room = min(l.room, 0)
	}
	return l.room
}

// Take implements [State].
func (l *Line) Take(n int64) int64 {
	l.turn = l.schedule.until(0)
	l.schedule.add(n)
	return l.count()
}

// Delay returns how long after the last Advance the turn comes of what was
// taken last.
func (l *Line) Delay() int64 { return l.turn }

// Used implements [State].
func (l *Line) Used() int64 { return l.places - l.room }

// After implements [State].
func (l *Line) After(n int64) int64 {
	after := l.schedule.until(l.Used() - n)
	if l.maxWait > 0 {
		after = max(after, l.schedule.until(0)-l.maxWait)
	}
	return max(0, after)
}
