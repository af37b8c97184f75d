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

// Return implements [State], as that of a [TokenBucket].
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
