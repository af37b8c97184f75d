package core

// A schedule is what a queue keeps: units pass one after the other, at Limit a Window,
// and the last of them has passed at its end.
type schedule struct {
	end   int64 // µs, rounded down
	part  int64 // Limit-ths of a µs that end is later
	limit int64 // what part counts in
	owed  int64 // units by which debts may make it longer than it can be otherwise

	// of the last advance
	now, window, ahead, aheadPart int64
}

// advance brings the schedule to now, and shortens it to most units and what is owed.
func (s *schedule) advance(q *Quota, now, most int64) {
	s.now, s.window = now, q.Window
	if s.limit != q.Limit {
		if s.part > 0 {
			s.end, s.part = s.end+1, 0
		}
		s.limit = q.Limit
	}
	if s.end > now { // ahead of what it can be: the clock has stepped back, or most has changed
		if longest, part := MulDiv(min(most+s.owed, q.mostOwed()), q.Window, q.Limit); s.end-now > longest || s.end-now == longest && s.part > part {
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

// Expires returns when the last unit has passed.
func (s *schedule) Expires() int64 {
	if s.part > 0 {
		return s.end + 1
	}
	return s.end
}
