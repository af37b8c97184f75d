package core

// Need makes o, the outcome of a cost of 0, that of a charge that needs units. It reports whether
// they fit.
func (o *Outcome) Need(units int64) bool {
	if o.Fits() && o.Remaining < units {
		o.RetryAfter, o.MoreAfter = max(1, o.MoreAfter), 0
	}
	return o.Fits()
}

// NotBefore makes o refuse for at least so long.
func (o *Outcome) NotBefore(after int64) {
	if o.RetryAfter != Never {
		o.RetryAfter, o.MoreAfter = max(1, o.RetryAfter, after), 0
	}
}

// Pass makes o what it is so many microseconds later, if nothing happens meanwhile: its
// times are that much shorter, but none is over.
func (o *Outcome) Pass(micros int64) {
	o.RetryAfter, o.MoreAfter, o.ResetAfter = later(o.RetryAfter, micros), later(o.MoreAfter, micros), later(o.ResetAfter, micros)
}

// later returns what is left of a time, and of none or [Never] the same.
func later(after, by int64) int64 {
	if after <= 0 {
		return after
	}
	return max(1, after-by)
}

// Back makes o what it is once units are given back, at most to capacity.
func (o *Outcome) Back(units, capacity int64) {
	if o.Remaining = min(o.Remaining+units, capacity); o.Remaining == capacity {
		o.MoreAfter, o.ResetAfter = 0, 0
	}
}
