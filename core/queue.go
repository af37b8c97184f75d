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

	capacity, room, maxWait int64 // of the last Advance
}

// Advance implements [State].
func (u *queueState) Advance(q *Quota, now int64) int64 {
	u.capacity, u.maxWait = q.Burst+1, q.MaxWait
	u.schedule.advance(q, now, u.capacity)
	return u.count()
}

// count counts the units that there is room for: none if the next one would wait
// for too long.
func (u *queueState) count() int64 {
	u.room = u.capacity - u.schedule.units()
	if u.maxWait > 0 && u.schedule.until(0) > u.maxWait {
		u.room = min(u.room, 0)
	}
	return u.room
}

// Take implements [State].
func (u *queueState) Take(n int64, _ uint64) (room, delay int64) {
	delay = u.schedule.until(0)
	u.schedule.add(n)
	return u.count(), delay
}

// Used implements [State].
func (u *queueState) Used() int64 { return u.capacity - u.room }

// After implements [State].
func (u *queueState) After(n int64) int64 {
	after := u.schedule.until(u.Used() - n)
	if u.maxWait > 0 {
		after = max(after, u.schedule.until(0)-u.maxWait)
	}
	return max(0, after)
}

// Return implements [State]. It gives back units at the end of the queue whose
// turn has not come. An earlier unit has others behind it, and its turn passes
// unused. If the rate is above one unit a microsecond, turns cannot be told apart
// and nothing is given back.
func (u *queueState) Return(r *Return, now int64) int64 {
	s := &u.schedule
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
func (u *queueState) Clone() State {
	copied := *u
	return &copied
}
