package core

// LeakyBucket admits what a [TokenBucket] with the same Burst does: units at
// Limit a Window, and up to Burst of them at once. It is a leaky bucket as a
// meter, and keeps one time: when a key that has kept to its rate would have come
// next. The time is exact, in microseconds and Limit-ths of one.
//
// Trade-off: when the limit changes, that time stays and is worth more or fewer
// units.
//
// When the clock steps back, a key waits at most until Burst units have leaked.
//
// The method is the generic cell rate algorithm of ATM, ITU-T I.371 (1993).
const LeakyBucket Algorithm = 5

// A leakyState is a schedule of at most Burst units.
type leakyState struct {
	Base
	schedule

	returns *returns // nil until something is given back

	burst, used int64 // of the last Advance
}

// Advance implements [State].
func (g *leakyState) Advance(q *Quota, now int64) int64 {
	g.burst = q.Burst
	g.schedule.advance(q, now, q.Burst)
	g.used = g.schedule.units()
	return g.burst - g.used
}

// Take implements [State].
func (g *leakyState) Take(n int64, _ uint64) (room, delay int64) {
	g.schedule.add(n)
	g.used = g.schedule.units()
	return g.burst - g.used, 0
}

// Used implements [State].
func (g *leakyState) Used() int64 { return g.used }

// After implements [State].
func (g *leakyState) After(n int64) int64 { return g.schedule.until(g.used - n) }

// Expires implements [State]. What was given back is remembered as long as it
// matters.
func (g *leakyState) Expires() int64 { return max(g.schedule.Expires(), g.returns.until()) }

// A schedule is a line of units that pass at Limit a Window: the time at which
// the last of them has passed, which is at most a whole line ahead of now.
type schedule struct {
	end   int64 // µs, rounded down
	part  int64 // Limit-ths of a µs that end is later
	limit int64 // what part counts in

	// of the last advance
	now, window, ahead, aheadPart int64
}

// advance brings the schedule to now. It is never longer than most units.
func (s *schedule) advance(q *Quota, now, most int64) {
	s.now, s.window = now, q.Window
	if s.limit != q.Limit {
		if s.part > 0 {
			s.end, s.part = s.end+1, 0
		}
		s.limit = q.Limit
	}
	if s.end > now { // ahead of what it can be: the clock has stepped back, or most has changed
		if longest, part := MulDiv(most, q.Window, q.Limit); s.end-now > longest || s.end-now == longest && s.part > part {
			s.end, s.part = now+longest, part
		}
	}
	s.ahead, s.aheadPart = 0, 0
	if s.end >= now {
		s.ahead, s.aheadPart = s.end-now, s.part
	}
}

// units returns how many units have not passed, one that is passing included.
func (s *schedule) units() int64 {
	whole, rest := MulDiv(s.ahead, s.limit, s.window)
	return whole + CeilDiv(rest+s.aheadPart, s.window)
}

// add puts n units at the end.
func (s *schedule) add(n int64) {
	whole, rest := MulDiv(n, s.window, s.limit)
	rest += s.aheadPart
	s.ahead += whole + rest/s.limit
	s.aheadPart = rest % s.limit
	s.end, s.part = s.now+s.ahead, s.aheadPart
}

// until returns how long until no more than n units have not passed.
func (s *schedule) until(n int64) int64 {
	whole, rest := MulDiv(n, s.window, s.limit)
	return s.ahead - whole - FloorDiv(rest-s.aheadPart, s.limit)
}

// Expires implements [State].
func (s *schedule) Expires() int64 {
	if s.part > 0 {
		return s.end + 1
	}
	return s.end
}

// Return implements [State], as that of a [Bucket].
func (g *leakyState) Return(r *Return, now int64) int64 {
	q, s := &r.Quota, &g.schedule
	if s.limit != q.Limit || s.end < now || r.At > now {
		return 0
	}
	units, part := MulDiv(s.end-now, q.Limit, q.Window)
	part += s.part
	lacks := level{units + part/q.Window, part % q.Window}
	if (level{units: q.Burst}).below(lacks) {
		return 0
	}
	lacks, given := give(&g.returns, r, now, lacks)
	if given > 0 {
		whole, rest := MulDiv(lacks.units, q.Window, q.Limit)
		rest += lacks.part
		s.end, s.part = now+whole+rest/q.Limit, rest%q.Limit
		if lacks == (level{}) {
			s.end = 0 // as new, also for a clock that steps back
		}
	}
	return given
}

// Clone implements [State].
func (g *leakyState) Clone() State {
	copied := *g
	copied.returns = g.returns.clone()
	return &copied
}
