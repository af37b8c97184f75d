package core

// A schedule is what a queue keeps: units pass one after the other, at Limit a Window,
// and the last of them has passed at its end. The end is the same for all versions of a
// quota, and none moves it back: each unit takes as long as the version says that admits it.
type schedule struct {
	end   int64 // µs, rounded down
	part  int64 // scale-ths of a µs that end is later
	scale int64 // what part counts in: the Limit
	last  int64 // when it was written

	// of the last advance
	now, limit, window, ahead, aheadPart int64
}

// advance brings the schedule to now. If the clock has stepped back, it is as long as
// when it was written.
func (s *schedule) advance(q *Quota, now int64) {
	s.now, s.limit, s.window = now, q.Limit, q.Window
	end, part := s.stop()
	if s.last > now && s.shifted() >= now {
		s.end, s.last = s.shifted(), now
	}
	s.ahead, s.aheadPart = 0, 0
	if end >= now {
		s.ahead, s.aheadPart = end-now, part
	}
}

// shifted returns the end, earlier by what the clock has stepped back.
func (s *schedule) shifted() int64 { return max(0, s.end-max(0, s.last-s.now)) }

// stop returns the end by the limit of the last advance, rounded up.
func (s *schedule) stop() (end, part int64) {
	end, part = s.shifted(), s.part
	if part == 0 || s.scale == s.limit {
		return end, part
	}
	part, rest := MulDiv(part, s.limit, s.scale)
	if rest > 0 {
		part++
	}
	return end + part/s.limit, part % s.limit
}

// write sets the end.
func (s *schedule) write(end, part int64) {
	s.end, s.part, s.scale, s.last = end, part, s.limit, s.now
	s.ahead, s.aheadPart = 0, 0
	if end >= s.now {
		s.ahead, s.aheadPart = end-s.now, part
	}
}

// mostUnits is more than any capacity, and as many as Redis scripts count exactly.
const mostUnits = int64(1) << 50

// units returns how many units have not passed, one that is passing included.
func (s *schedule) units() int64 {
	whole, rest := MulDiv(s.ahead, s.limit, s.window)
	return min(whole+CeilDiv(rest+s.aheadPart, s.window), mostUnits)
}

// after returns when n units that follow a time have passed.
func (s *schedule) after(n, at, part int64) (end, endPart int64) {
	whole, rest := MulDiv(n, s.window, s.limit)
	rest += part
	return at + whole + rest/s.limit, rest % s.limit
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
