package core

import (
	"math"
	"slices"
)

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
// Units can be given back as far as the bucket would have lacked them at every time since they were
// taken; the rest has been refilled. What it lacked right after that is known from the admission,
// less the units in it that were given back since, which count as never taken. From then on it only
// refills: what others took since only makes it lack more.
//
// So all that must be remembered is how many units that had been taken by a time were given back
// after it, for each time that a return may still name: a function in steps, to which a return adds
// its units from its take until now. Takes of one microsecond go by what the bucket lacked after
// them. Where their returns confuse the order, these count as later ones: they are at least as
// many units as are not counted.
//
// If there are too many steps, the neighbors that differ least become one, with the larger number.
// Then too little is given back, and the admissions that follow know it, so that less and less is
// lost: TestReturnsThatOverlap never saw a bucket lack more than three times what was in use at
// once.
type returns struct {
	limit, window, burst int64 // of the quota of the last return

	at    int64  // when it was
	cut   int64  // when a part of a unit was last given back: later levels differ from earlier ones by parts of units
	steps []step // in order, up to at; never changed in place
}

// A step is how many units were given back after takes behind those of the step before, up to a
// time, and up to what the bucket lacked after them at that time. They were taken before.
type step struct{ at, lacks, units int64 }

// covers reports whether a step goes up to a time and level, or further.
func (s *step) covers(at, lacks int64) bool { return at < s.at || at == s.at && lacks <= s.lacks }

const returnSteps = 8

// until returns the time from which m is of no use.
func (m *returns) until() int64 {
	if m == nil {
		return 0
	}
	q := Quota{Limit: m.limit, Window: m.window, Burst: m.burst}
	return m.at + q.fills() + 1
}

// since returns how many units were given back after a take, and had been taken by then.
func (m *returns) since(at, lacks int64) int64 {
	for _, s := range m.steps {
		if s.covers(at, lacks) {
			return s.units
		}
	}
	return 0
}

// put adds a step, if it is behind the others.
func (m *returns) put(s step, most int64) {
	if n := len(m.steps); n == 0 || !m.steps[n-1].covers(s.at, s.lacks) {
		s.units = min(s.units, most)
		m.steps = append(m.steps, s)
	}
}

// add returns m with more units given back now, taken when the bucket lacked as much before.
func (m *returns) add(q *Quota, at, lacks, now, units int64) *returns {
	n := &returns{limit: q.Limit, window: q.Window, burst: q.Burst, at: now, cut: m.cut, steps: make([]step, 0, returnSteps+3)}
	for _, s := range m.steps {
		if s.at < now-q.fills() {
			continue // what was taken by then is refilled
		}
		if s.covers(at, lacks) && (s.at != at || s.lacks != lacks) {
			n.put(step{at, lacks, s.units}, q.Burst)
			s.units += units
		}
		n.put(s, q.Burst)
	}
	n.put(step{at, lacks, 0}, q.Burst)
	n.put(step{now, q.Burst, units}, q.Burst)
	for len(n.steps) > returnSteps {
		n.join()
	}
	return n
}

// join makes one of the two neighbors that differ least.
func (m *returns) join() {
	least, at := int64(math.MaxInt64), 0
	for i := range len(m.steps) - 1 {
		by := m.steps[i+1].units - m.steps[i].units
		if by = max(by, -by); by < least {
			least, at = by, i
		}
	}
	m.steps[at+1].units = max(m.steps[at].units, m.steps[at+1].units)
	m.steps = slices.Delete(m.steps, at, at+1)
}

// read returns what m says of returns by a quota.
func (m *returns) read(q *Quota) returns {
	switch {
	case m == nil:
		return returns{}
	case m.limit != q.Limit || m.window != q.Window || m.burst != q.Burst: // other levels: nothing from before can be given back
		return returns{at: m.at, cut: m.at, steps: []step{{m.at, q.Burst, q.Burst}}}
	}
	return *m
}

// give gives back what it can of r, and remembers it. It returns the level after
// that, and how many units were given back. A part of a unit counts as one.
func give(memory **returns, r *Return, now int64, lacks level) (level, int64) {
	q, m := &r.Quota, *memory
	if m != nil && now < m.at {
		return lacks, 0 // the clock has stepped back
	}
	if m.until() <= now {
		m = nil // a store may have forgotten it
	}
	known := m.read(q)
	since := m != nil && r.At <= known.at // something may have been given back since
	before := since && r.At < now         // and time has passed
	exact := !before || r.At > known.cut  // all levels since are whole units away from now's: so is its part of one
	took := q.Burst - r.Remaining         // what the bucket lacked then, rounded up
	most := level{units: took}
	if !exact {
		most.units--
		if less, part := MulDiv(r.ResetAfter-1, q.Limit, q.Window); r.ResetAfter > 0 && less == most.units {
			most.part = part // within a microsecond's refill
		}
	}
	if before {
		most.units -= known.since(r.At, took)
	}
	most = most.later(q, now-r.At)
	if exact && most.part != lacks.part {
		if most.part < lacks.part {
			most.units--
		}
		most.part = lacks.part
	}
	alone := !since && most == lacks
	given := most.least(lacks).least(level{units: r.Cost})
	if given.units < 0 || given == (level{}) {
		return lacks, 0
	}
	units := given.units
	if given.part > 0 {
		units++
	}
	if !alone { // another request came since: it must not be given back what this one is
		next := known.add(q, r.At, took-units, now, units)
		if given.units < r.Cost {
			next.cut = now
		}
		*memory = next
	}
	return lacks.minus(given, q.Window), units
}
