package core

// Queue admits requests one after the other, at Limit a Window. An admitted
// request is delayed until its turn: see [Decision].Delay. Up to Burst units
// wait, each for at most MaxWait if that is not 0.
//
// Admitted units follow one another by Window/Limit, exactly and over all
// instances, in whatever order they were charged. It keeps one time.
//
// Trade-off: after a pause, units come no faster. The turn of a client that goes
// away passes unused, unless it is returned.
//
// When the clock steps back, the queue is at most as long as it can be.
//
// The method is the leaky bucket of Turner (1986), in which nginx's limit_req and
// uber-go/ratelimit reserve turns.
const Queue Algorithm = 6

// A queueState is a schedule of at most Burst units that wait and one that passes.
type queueState struct {
	Base
	schedule

	places, room, maxWait int64 // of the last Advance
}

// Advance implements [State].
func (l *queueState) Advance(q *Quota, now int64) int64 {
	l.places, l.maxWait = q.Burst+1, q.MaxWait
	l.schedule.advance(q, now, l.places)
	return l.count()
}

// count counts the places that are free: none if the next turn is too late.
func (l *queueState) count() int64 {
	l.room = l.places - l.schedule.units()
	if l.maxWait > 0 && l.schedule.until(0) > l.maxWait {
		l.room = min(l.room, 0)
	}
	return l.room
}

// Take implements [State].
func (l *queueState) Take(n int64, _ uint64) (room, delay int64) {
	delay = l.schedule.until(0)
	l.schedule.add(n)
	return l.count(), delay
}

// Used implements [State].
func (l *queueState) Used() int64 { return l.places - l.room }

// After implements [State].
func (l *queueState) After(n int64) int64 {
	after := l.schedule.until(l.Used() - n)
	if l.maxWait > 0 {
		after = max(after, l.schedule.until(0)-l.maxWait)
	}
	return max(0, after)
}

// Return implements [State]: turns that are the last of the line and have not
// come yet. Others stand behind any other turn, which passes unused. Once the
// last has left, the one before it is the last. More than one turn a microsecond
// cannot be told apart, and do not come back.
func (l *queueState) Return(r *Return, now int64) int64 {
	s := &l.schedule
	end := s.end
	if s.part > 0 {
		end++
	}
	if s.limit != r.Quota.Limit || s.limit > r.Quota.Window || r.At > now || s.end < now || end != r.At+r.ResetAfter {
		return 0
	}
	s.now, s.window, s.ahead, s.aheadPart = now, r.Quota.Window, s.end-now, s.part
	given := min(r.Cost, s.units()-1) // but the one that is passing
	if given <= 0 {
		return 0
	}
	whole, rest := MulDiv(given, s.window, s.limit)
	s.end, s.part = s.end-whole, s.part-rest
	if s.part < 0 {
		s.end, s.part = s.end-1, s.part+s.limit
	}
	return given
}

// Clone implements [State].
func (l *queueState) Clone() State {
	copied := *l
	return &copied
}
