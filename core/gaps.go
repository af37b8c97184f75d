package core

import (
	"cmp"
	"slices"
)

// Gaps are the turns in a queue that were given back before later ones. A request that
// fits into one has its turn there; none of the later turns moves. They are dropped when a
// version with another limit or window admits something at the end.
type gaps struct {
	window int64 // of the queue
	total  int64 // the number of the next unit at the end
	list   []gap // in order, apart from each other
}

// A gap is some units that follow one another, by their numbers.
type gap struct{ from, units int64 }

func (g *gap) end() int64 { return g.from + g.units }

// MaxGaps is how many gaps a [Queue] remembers.
const MaxGaps = 512

// turns returns the gaps, if they count by the quota of the last Advance.
func (u *queueState) turns() []gap {
	if u.gaps == nil || u.gaps.window != u.window || u.scale != u.limit {
		return nil
	}
	return u.gaps.list
}

// open returns what is left of a gap now, and how long until its turn.
func (u *queueState) open(g gap) (left gap, delay int64) {
	whole, rest := MulDiv(u.ahead, u.limit, u.window)
	next := u.gaps.total - whole - FloorDiv(rest+u.aheadPart, u.window) // the first unit whose turn has not begun
	left.from = max(g.from, next)
	left.units = g.end() - left.from
	return left, u.until(u.gaps.total - left.from)
}

// fits returns the index of the first gap with room for n units, or -1.
func (u *queueState) fits(n int64) int {
	return slices.IndexFunc(u.turns(), func(g gap) bool {
		left, delay := u.open(g)
		return left.units >= n && (u.maxWait == 0 || delay <= u.maxWait)
	})
}

// trim drops what has passed, and all if it counts by another quota.
func (u *queueState) trim() {
	var list []gap
	for _, g := range u.turns() {
		if left, _ := u.open(g); left.units > 0 {
			list = append(list, left)
		}
	}
	if list == nil {
		u.gaps = nil
		return
	}
	u.gaps.list = list
}

// behind returns how many units are behind a turn that ends at a time, if there is one.
func (s *schedule) behind(ends int64) (units int64, ok bool) {
	if s.Expires() < ends {
		return 0, false
	}
	units, _ = MulDiv(s.Expires()-ends, s.limit, s.window)
	for range 2 { // times are rounded up
		if s.now+s.until(units) == ends {
			return units, true
		}
		units++
	}
	return 0, false
}

// cut takes n units from the end.
func (s *schedule) cut(n int64) {
	whole, rest := MulDiv(n, s.window, s.limit)
	s.end, s.part = s.end-whole, s.part-rest
	if s.part < 0 {
		s.end, s.part = s.end-1, s.part+s.limit
	}
}

// add returns gaps with one more, which overlaps none of them.
func (g *gaps) add(more gap) []gap {
	i, _ := slices.BinarySearchFunc(g.list, more.from, func(g gap, from int64) int { return cmp.Compare(g.from, from) })
	list := slices.Insert(slices.Clone(g.list), i, more)
	if i+1 < len(list) && list[i].end() == list[i+1].from {
		list[i].units += list[i+1].units
		list = slices.Delete(list, i+1, i+2)
	}
	if i > 0 && list[i-1].end() == list[i].from {
		list[i-1].units += list[i].units
		list = slices.Delete(list, i, i+1)
	}
	return list
}
