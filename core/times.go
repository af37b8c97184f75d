package core

// ClampTime returns the time from 0 to [MaxTime] that is nearest to now. States take no
// others: a clock may be wrong, but must not make an algorithm panic.
func ClampTime(now int64) int64 { return min(max(now, 0), MaxTime) }

// TimeOf returns when the store decided the charge of outcome i: the times of the outcome are
// relative to it, and it is the At of a [Return]. It is At, unless the store spreads charges over
// servers with their own clocks: At is the latest of their times.
func (d *Decision) TimeOf(i int) int64 {
	if d.times == nil {
		return d.At
	}
	return d.times[i]
}

// SetTimeOf sets what TimeOf returns, and brings At up to the latest. Copies of d
// that were made after the first call share it.
func (d *Decision) SetTimeOf(i int, at int64) {
	if at == d.TimeOf(i) {
		return
	}
	if d.times == nil {
		d.times = new([MaxCharges]int64)
		for j := range d.times {
			d.times[j] = d.At
		}
	}
	d.times[i] = at
	d.At = max(d.At, at)
}

// Later returns a refusal as it is the given microseconds after At: see [Outcome.Pass].
func (d *Decision) Later(by int64) Decision {
	later := NewDecision(d.At+by, int(d.n))
	later.Mode = d.Mode
	for i, o := range d.Outcomes() {
		o.Pass(by)
		later.Outcomes()[i] = o
	}
	return later
}
