package core

// What algorithms count of units that others admitted, and what they tell those: see [Tallies].

// logSpendings is as how many spendings a log tells its units, at most.
const logSpendings = 32

func (l *Log) tell(q *Quota, n, at, now int64, _ bool) {
	l.Advance(q, now)
	l.Owe(q, n, at, 0, false)
}

func (l *Log) spent(int64) (list []spending) {
	each := CeilDiv(int64(l.size), logSpendings)
	for i := int64(0); i < int64(l.size); i += each {
		n := min(each, int64(l.size)-i)
		list = append(list, spending{n, l.at(int32(i + n - 1))})
	}
	return list
}

func (c *cellsState) tell(q *Quota, n, at, now int64, _ bool) {
	c.Advance(q, now)
	owe(c, q, now, n, at, false)
}

// spent implements [teller]: the units of a cell are dated at its end.
func (c *cellsState) spent(int64) (list []spending) {
	o := fullest(c).(*cellsState)
	newest, keep := o.last/o.length, o.keep()
	for cell := max(0, newest-keep+1); cell <= newest; cell++ {
		if n := o.counts[cell%keep]; n > 0 {
			list = append(list, spending{n, min((cell+1)*o.length-1, o.last)})
		}
	}
	return list
}

func (c *counterState) tell(q *Quota, n, at, now int64, _ bool) {
	c.Advance(q, now)
	owe(c, q, now, n, at, false)
}

func (c *counterState) spent(int64) (list []spending) {
	o := fullest(c).(*counterState)
	if begins := o.last / o.window * o.window; o.previous > 0 && begins > 0 {
		list = append(list, spending{o.previous, begins - 1})
	}
	if o.current > 0 {
		list = append(list, spending{o.current, o.last})
	}
	return list
}

// tell implements [teller], without the calendar, which scripts do not know. Once a window counts
// units, it has a list of grids, for those above the limit.
func (w *windowState) tell(q *Quota, n, at, now int64, _ bool) {
	if w.grids != nil || !w.cuts(q) {
		turnTo(w, q, now)
	}
	if w.grids == nil && w.count > 0 {
		w.grids = &grids{list: []gridOf{{used: w.last}}}
	}
	w.enter(now)
	if w.grids != nil {
		w.grids.advance(w, q)
	}
	owe(w, nil, now, n, at, true)
}

func (w *windowState) spent(int64) []spending {
	o := fullest(w).(*windowState)
	if o.count == 0 {
		return nil
	}
	return []spending{{o.count, o.last}}
}

// fullest returns the grid of a key that holds most.
func fullest(g grid) grid {
	all := *g.others()
	if all == nil {
		return g
	}
	var most grid
	for i := range all.list {
		if one := all.list[i].of(g); most == nil || one.holds() > most.holds() {
			most = one
		}
	}
	return most
}

func (b *bucketState) tell(q *Quota, n, at, now int64, owed bool) {
	b.Advance(q, now)
	if owed {
		b.Owe(q, n, at, 0, false)
		return
	}
	b.owe(n, at, q.Burst)
}

func (b *bucketState) spent(int64) []spending {
	if b.missing == 0 {
		return nil
	}
	return []spending{{b.missing, b.last}}
}

func (u *queueState) tell(q *Quota, n, at, now int64, owed bool) {
	u.Advance(q, now)
	if owed {
		u.Owe(q, n, at, 0, false)
		return
	}
	u.owe(n, at, u.capacity)
}

// spent implements [teller]. A queue does not know the window of its quota, only the limit.
func (u *queueState) spent(window int64) []spending {
	if u.scale == 0 || u.end < u.last {
		return nil
	}
	units, rest := MulDiv(u.end-u.last, u.scale, window)
	units = min(units+CeilDiv(rest+u.part, window), mostUnits)
	if units == 0 {
		return nil
	}
	return []spending{{units, u.last}}
}
