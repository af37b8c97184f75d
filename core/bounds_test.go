package core

import "math/big"

// run lives n decisions, and tells after each what must hold whatever the clock
// does and whatever is changed.
func (l *life) run(n int) {
	if l.kind == forward {
		l.plain, l.quiet = newPlain(l.q), NewState(l.q.Algorithm)
	}
	begun := false
	for range n {
		step := l.step()
		if step < 0 && (l.kind != stepsBack || l.now+step < 0) {
			step = 0
		}
		l.now += step
		if begun && step > 0 {
			l.moved += step
		}
		if step < 0 {
			l.checkStepBack()
		}
		if l.kind == changes && l.random.IntN(5) == 0 {
			l.change()
		}
		cost := l.cost()
		l.decide(cost)
		begun = begun || cost > 0 && (l.last.Allowed || l.q.Missing > 0)
		longest := l.longest()
		if l.q.Queues() { // which keeps its end
			l.ever = max(l.ever, longest)
			longest = l.ever
		}
		if reset := l.last.Outcomes()[0].ResetAfter; reset > longest {
			l.fail("whole after %d, and never later than %d", reset, longest)
		}
		if !l.changed {
			l.checkRate()
		}
		if l.kind == forward {
			l.checkWindows()
			l.checkTurns()
		}
	}
}

// checkStepBack tells that a clock that steps back gives nothing.
func (l *life) checkStepBack() {
	probe := l.state.Clone()
	if probe.Advance(&l.q, l.now); probe.Used() < l.before {
		l.fail("%d used after the clock has stepped back, and %d before", probe.Used(), l.before)
	}
}

// longest is the time after which every key is whole that nobody comes for.
func (l *life) longest() int64 {
	const hour = 3600 * 1_000_000
	q := &l.q
	fills := func(n int64) int64 {
		return ceil(new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(q.Window, q.Limit)))
	}
	switch q.Algorithm {
	case FixedWindow:
		if unit := q.Calendar.Unit; unit != 0 {
			return map[CalendarUnit]int64{Hour: hour, Day: 25 * hour, Week: 169 * hour, Month: 745 * hour}[unit]
		}
		return q.Window
	case SlidingCells:
		return (q.Cells + 1) * (&plainCells{q: *q}).length()
	case SlidingCounter:
		return 2 * q.Window
	}
	if q.Refills() {
		return fills(q.Capacity())
	}
	return q.Span()
}

// checkRate tells that no more was taken than a burst and what came back in the
// time that the clock went forward.
func (l *life) checkRate() {
	most := big.NewRat(l.moved, l.q.Window)
	if !l.q.Refills() {
		return
	}
	most.Mul(most, big.NewRat(l.q.Limit, 1))
	most.Add(most, big.NewRat(l.q.Capacity()-l.q.Missing, 1))
	var sum int64
	for _, u := range l.took {
		sum += u.n
	}
	if big.NewRat(sum, 1).Cmp(most) > 0 {
		l.fail("%d taken, and at most %v may be", sum, most)
	}
}

// checkWindows tells that cells never have more than the limit in any window.
func (l *life) checkWindows() {
	if l.q.Algorithm != SlidingCells {
		return
	}
	var sum int64
	for i := len(l.took) - 1; i >= 0 && l.now-l.took[i].at < l.q.Window; i-- {
		sum += l.took[i].n
	}
	if sum > l.q.Limit {
		l.fail("%d in the window that ends now", sum)
	}
}

// checkTurns tells that the turns of a queue are as far apart as its rate says,
// over any number of them, to the microsecond to which they are rounded up;
// that no more wait than may, and none for too long.
func (l *life) checkTurns() {
	if !l.q.Queues() || len(l.turns) == 0 {
		return
	}
	last := len(l.turns) - 1
	var between int64
	for i := last - 1; i >= max(0, last-12); i-- {
		between += l.took[i].n
		apart := big.NewRat(l.turns[last]-l.turns[i]+1, 1)
		length := big.NewRat(l.q.Window, l.q.Limit)
		if length.Mul(length, big.NewRat(between, 1)); apart.Cmp(length) <= 0 {
			l.fail("turns %d and %d for %d units between them", l.turns[i], l.turns[last], between)
		}
	}
	if l.q.MaxWait > 0 && l.turns[last]-l.took[last].at > l.q.MaxWait {
		l.fail("waits for %d", l.turns[last]-l.took[last].at)
	}
	var wait int64
	for _, turn := range l.turns {
		if turn > l.now {
			wait++
		}
	}
	if l.ones && wait > l.q.Burst {
		l.fail("%d wait", wait)
	}
}

// change changes the quota, and tells what that gives.
func (l *life) change() {
	next := l.q
	next.Limit = 1 + l.random.Int64N(2*min(l.q.Limit, MaxLimit/2))
	bursts := l.random.IntN(2) == 0 && l.q.Burst > 0
	if bursts {
		next.Limit, next.Burst = l.q.Limit, 1+l.random.Int64N(2*min(l.q.Burst, MaxLimit/2))
		next.Missing = min(next.Missing, next.Burst)
	}
	windows := l.random.IntN(4) == 0
	if windows {
		next.Window = MinWindow + l.random.Int64N(3*min(l.q.Window, MaxWindow/4))
		next.MaxWait = min(next.MaxWait, next.Window)
		if next.Cells > 0 {
			next.Cells = 2 + l.random.Int64N(MaxCells-1)
		}
	}
	if next.Validate() != nil {
		return
	}
	old := l.state.Clone()
	roomBefore, used := old.Advance(&l.q, l.now), old.Used()
	roomAfter := l.state.Clone().Advance(&next, l.now)
	missing, grown := l.q.Missing != next.Missing, next.Burst-l.q.Burst
	l.q, l.changed = next, true
	switch {
	case windows || missing:
	case !l.q.Refills():
		if l.q.Limit-roomAfter != used {
			l.fail("%d were used of the old limit, %d of the new one", used, l.q.Limit-roomAfter)
		}
	case bursts:
		if roomAfter > max(0, roomBefore)+max(0, grown) {
			l.fail("room for %d became room for %d as the burst grew by %d", roomBefore, roomAfter, grown)
		}
	}
}
