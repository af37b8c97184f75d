package core

// A level is how much a bucket lacks: units, and Windowths of one.
type level struct{ units, part int64 }

// levelOf returns the level of units, if back Windowths of the last are refilled.
func levelOf(units, back, window int64) level {
	if back > 0 {
		return level{units - 1, window - back}
	}
	return level{units, 0}
}

// missing returns how many units that are, and how many windowths of the last are refilled.
func (l level) missing(window int64) (units, back int64) {
	if l.part > 0 {
		return l.units + 1, window - l.part
	}
	return l.units, 0
}

func (l level) below(other level) bool {
	return l.units < other.units || l.units == other.units && l.part < other.part
}

func (l level) least(other level) level {
	if other.below(l) {
		return other
	}
	return l
}

// minus returns l less a level that is not above it.
func (l level) minus(other level, window int64) level {
	l.units, l.part = l.units-other.units, l.part-other.part
	if l.part < 0 {
		l.units, l.part = l.units-1, l.part+window
	}
	return l
}

// later returns the level after some time in which nothing is taken.
func (l level) later(q *Quota, micros int64) level {
	units, part := MulDiv(micros, q.Limit, q.Window)
	if back := (level{units, part}); back.below(l) {
		return l.minus(back, q.Window)
	}
	return level{}
}

// returns is what a bucket remembers of what was given back to it.
//
// Units can be given back as far as the bucket has lacked them at every time
// since they were taken. The rest has been refilled. If other requests only took
// units since, the bucket has always lacked at least what the admission alone
// would leave by now. If units were given back since, it may have lacked less. So
// a lower bound of the level is kept for each of the last cells, which together
// are as long as a burst takes to refill. It is the lowest level between returns,
// less what was given back later of units taken before.
type returns struct {
	limit, window, burst int64 // of the quota of the last return

	at   int64              // when it was
	cut  int64              // when a part of a unit was last given back: later levels differ from earlier ones by parts of units
	left level              // what the bucket lacked after it
	lows [returnCells]level // by the number of the cell
}

const returnCells = 8

func (q *Quota) returnCell(at int64) int64 { return at / (q.fills()/(returnCells-1) + 1) }

// until returns the time from which m is of no use.
func (m *returns) until() int64 {
	if m == nil {
		return 0
	}
	q := Quota{Limit: m.limit, Window: m.window, Burst: m.burst}
	return m.at + q.fills() + 1
}

// advance brings m to now, and makes it if it is nil.
func (m *returns) advance(q *Quota, now int64, lacks level) (n returns) {
	n = returns{limit: q.Limit, window: q.Window, burst: q.Burst, at: now}
	switch {
	case m == nil:
		for i := range n.lows {
			n.lows[i] = lacks
		}
	case m.limit != q.Limit || m.window != q.Window || m.burst != q.Burst:
		n.cut = now // other levels and cells: nothing from before can be given back
	default:
		n.cut, n.lows = m.cut, m.lows
		since := m.left.later(q, now-m.at)
		last, cell := q.returnCell(m.at), q.returnCell(now)
		for i := max(last, cell-returnCells+1); i <= cell; i++ {
			low := &n.lows[i%returnCells]
			if *low = low.least(since); i > last {
				*low = since
			}
		}
	}
	return n
}

// cells returns the cells from that of a time to that of the last return.
func (m *returns) cells(q *Quota, from int64) (list []*level) {
	first, last := q.returnCell(from), q.returnCell(m.at)
	for i := max(first, last-returnCells+1); i <= last; i++ {
		list = append(list, &m.lows[i%returnCells])
	}
	return list
}

// give gives back what it can of r, and remembers it. It returns the level after
// that, and how many units were given back. A part of a unit counts as one.
func give(memory **returns, r *Return, now int64, lacks level) (level, int64) {
	m := *memory
	if m != nil && now < m.at {
		return lacks, 0 // the clock has stepped back
	}
	if m.until() <= now {
		m = nil // a store may have forgotten it
	}
	q := &r.Quota
	next := m.advance(q, now, lacks)
	since := m != nil && r.At <= m.at           // something may have been given back since
	before := since && r.At < now               // and time has passed
	exact := !before || r.At > next.cut         // all levels since are whole units away from now's
	most := level{units: q.Burst - r.Remaining} // Remaining is rounded down
	if !exact {
		most.units--
	}
	most = most.later(q, now-r.At)
	if exact && most.part != lacks.part {
		if most.part < lacks.part {
			most.units--
		}
		most.part = lacks.part
	}
	alone := !since && most == lacks
	most = most.least(lacks)
	if before {
		for _, low := range next.cells(q, r.At) {
			most = most.least(*low)
		}
	}
	given := most.least(level{units: r.Cost})
	if given.units < r.Cost {
		next.cut = now
	}
	if given.units < 0 || given == (level{}) {
		return lacks, 0
	}
	units := given.units
	if given.part > 0 {
		units++
	}
	if alone { // no other request came since: nothing needs to be remembered
		return lacks.minus(given, q.Window), units
	}
	for _, low := range next.cells(q, r.At) {
		*low = low.minus(low.least(given), q.Window)
	}
	lacks = lacks.minus(given, q.Window)
	next.left = lacks
	*memory = &next
	return lacks, units
}
