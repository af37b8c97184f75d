package core

import "slices"

// A grid is how an algorithm that counts in periods cuts time, with its counts: the cells of
// [SlidingCells], the windows of [SlidingCounter] and [FixedWindow]. Quotas that differ in their
// limit only have one grid. It is the state of a key that one version of a rule charges.
//
// A key that several versions charge has a grid for each, and a window in debt has a list
// of one. Whatever is admitted is charged to all of them, and a version decides by its
// own. So each decides as if it had admitted all that any of them did since its grid came.
//
//   - A grid comes with the first request that its version decides, but for looks. It begins
//     with what the longest of the others holds, of fixed windows the fullest: each count is
//     taken to be as late as it can be. If it came with the first unit that is taken, others
//     could keep its version out, since each of their units would make all counts later.
//   - A grid goes when its version has taken nothing for an hour and two of its spans.
//     Until then a key is remembered that has several.
//   - What a period of a [FixedWindow] has above the limit, since other versions or a debt
//     took it, counts in the next period too, up to one limit. Otherwise windows that begin
//     at other times would add up.
//   - At most [maxGrids] are kept. When another one takes a unit, the grid goes whose
//     version has taken nothing for longest.
type grid interface {
	State

	cuts(q *Quota) bool             // whether q has this grid
	lay(q *Quota)                   // makes it an empty one of q
	fill(other grid, at int64)      // counts what another one counts, in an empty one
	enter(now int64)                // is Advance without a quota
	taken() int64                   // when the last unit was taken
	ends() int64                    // until when its counts matter; 0 if it has none
	lasts() int64                   // until when they can matter to a calendar, which others do not know
	span() int64                    // how long a unit counts, at most
	holds() int64                   // by which the grid that holds most is chosen
	above(extra, limit int64) int64 // see gridOf: what is above the limit of a period that has passed
	fits(n, limit int64) bool       // whether its period has nothing above the limit with n units more, after enter
	open() bool                     // whether the period of the units goes on, after enter
	follows() bool                  // whether the period after it does, if it does not

	// owes reports whether units used at a time count, and owe takes them, after enter. Q
	// is nil for a grid that is not that of the decision, as it is for giveBack.
	owes(q *Quota, at, now int64) bool
	owe(n, at int64)
	giveBack(q *Quota, n, at, now int64) (given int64)

	empty() grid
	swap(other grid) // exchanges the counts
	others() **grids
}

// A cut has what all grids have, and carries no units from one period into the next.
type cut struct {
	usual
	grids *grids
}

func (c *cut) others() **grids        { return &c.grids }
func (*cut) above(int64, int64) int64 { return 0 }
func (*cut) fits(int64, int64) bool   { return true }
func (*cut) follows() bool            { return false }
func (*cut) open() bool               { return true }
func (*cut) lasts() int64             { return 0 }

// exchange exchanges the counts of two grids. What they have of others stays.
func exchange[T any, G interface {
	*T
	grid
}](one, other G) {
	mine, theirs := one.others(), other.others()
	*mine, *theirs = *theirs, *mine
	*one, *other = *other, *one
}

const (
	maxGrids = 4
	idleGrid = 3600 * 1_000_000 // µs, beside two spans
)

// grids are those of a key that has several, in the order in which they came.
type grids struct {
	list []gridOf
	own  int // the one that the state itself is, or the length of list if its version has taken nothing yet

	// of the state itself, and of the last Advance
	limit, extra int64
}

// A gridOf is a grid and its version's times.
type gridOf struct {
	grid grid  // nil for the state itself
	came int64 // when it was charged first; 0 for the first grid of a key
	used int64 // when its version last took units

	limit int64 // of its version then; see add if that is not known, or 0
	extra int64 // units above it in the period before
}

// turnTo makes g, the state of a key, its grid of q.
func turnTo(g grid, q *Quota, now int64) {
	held := g.others()
	if *held == nil {
		if g.ends() == 0 {
			g.lay(q)
			return
		}
		*held = &grids{list: []gridOf{{used: g.taken()}}}
	}
	all := *held
	cuts := func(v gridOf) bool { return v.of(g).cuts(q) }
	i := slices.IndexFunc(all.list, cuts)
	switch {
	case i < 0:
		if all.own < len(all.list) { // or it has not been charged
			mine := g.empty()
			g.swap(mine)
			all.list[all.own].grid = mine
		}
		all.own = len(all.list)
		g.swap(all.begin(q, now))
	case i != all.own:
		mine := all.list[i].grid
		g.swap(mine)
		if all.own < len(all.list) {
			all.list[all.own].grid = mine
		}
		all.list[i].grid, all.own = nil, i
		if v := &all.list[0]; len(all.list) == 1 && v.extra == 0 && g.above(0, v.limit) == 0 {
			*held = nil
		}
	}
}

func (v *gridOf) of(g grid) grid {
	if v.grid != nil {
		return v.grid
	}
	return g
}

// ends is that of the grid, and a period more if something is above the limit.
func (v *gridOf) ends(g grid) int64 {
	one := v.of(g)
	ends := one.ends()
	if ends > 0 && one.above(v.extra, v.limit) > 0 {
		ends += one.span()
	}
	return ends
}

// goes returns when the grid goes if its version takes nothing more.
func (v *gridOf) goes(g grid) int64 { return v.used + idleGrid + 2*v.of(g).span() }

// carry returns what extra is now. It follows an enter.
func (v *gridOf) carry(g grid) int64 {
	one := v.of(g)
	switch {
	case one.open():
		return v.extra
	case one.follows():
		return one.above(v.extra, v.limit)
	}
	return 0
}

// advance returns how many units of the period before count in that of g, the state.
func (a *grids) advance(g grid, q *Quota) int64 {
	if a.limit, a.extra = q.Limit, 0; a.own < len(a.list) {
		a.extra = a.list[a.own].carry(g)
	}
	return a.extra
}

// begin returns a grid for a version that comes.
func (a *grids) begin(q *Quota, now int64) grid {
	most := a.list[0].grid
	for i := range a.list {
		if other := a.list[i].grid; other.holds() > most.holds() {
			most = other
		}
	}
	g := most.empty()
	g.lay(q)
	if !a.fresh(nil, now) {
		g.fill(most, min(most.taken(), now))
	}
	return g
}

// fresh reports whether all grids are as good as new.
func (a *grids) fresh(g grid, now int64) bool {
	return !slices.ContainsFunc(a.list, func(v gridOf) bool { return v.ends(g) > now })
}

// forgotten reports whether a store may have forgotten what the key has, and its version is new.
func (a *grids) forgotten(g grid, now int64) bool {
	return a.own == 1 && len(a.list) == 1 && a.fresh(g, now)
}

// charge takes units that were used at a time from all grids of a key but g, its state. If it
// carries, the next period counts what they have above the limit.
func charge(g grid, now, n, at int64, carries bool) {
	held := g.others()
	all := *held
	if all.own == len(all.list) {
		if all.forgotten(g, now) {
			*held = nil
			return
		}
		all.add(gridOf{came: now})
	}
	mine := &all.list[all.own]
	mine.used, mine.limit, mine.extra = now, all.limit, all.extra
	all.drop(now)
	for i := range all.list {
		v := &all.list[i]
		if v.grid != nil && v.grid.owes(nil, at, now) {
			v.grid.enter(now)
			v.extra = v.carry(nil)
			v.grid.owe(n, at)
		}
	}
	if !carries {
		n = 0 // but what is above the limit already
	}
	if len(all.list) == 1 && all.extra == 0 && g.fits(n, all.limit) {
		*held = nil
	}
}

// add adds a grid. The limit of a version that was alone is not known: it is taken to be what
// its window holds. Otherwise the window would carry nothing of what others take in it.
func (a *grids) add(v gridOf) {
	if first := &a.list[0]; len(a.list) == 1 && first.came == 0 && first.limit == 0 {
		first.limit = first.grid.holds()
	}
	a.list = append(a.list, v)
}

// join makes g a grid of its key, if its version comes and is refused, for State.Refuse.
func join(g grid, now int64) bool {
	held := g.others()
	all := *held
	if all != nil && all.own == len(all.list) && all.own < maxGrids && !all.fresh(g, now) {
		all.add(gridOf{came: now, used: now})
		if all.drop(now); len(all.list) == 1 {
			*held = nil
		}
	}
	return false
}

// drop drops the grids that have gone out of use, and those that are too many.
func (a *grids) drop(now int64) {
	for i := len(a.list) - 1; i >= 0; i-- {
		if v := &a.list[i]; v.grid != nil && v.goes(nil) <= now {
			a.remove(i)
		}
	}
	for len(a.list) > maxGrids {
		longest := -1
		for i := range a.list {
			if i != a.own && (longest < 0 || a.list[i].used < a.list[longest].used) {
				longest = i
			}
		}
		a.remove(longest)
	}
}

func (a *grids) remove(i int) {
	a.list = slices.Delete(a.list, i, i+1)
	if i < a.own {
		a.own--
	}
}

// owe takes a debt from all grids of a key, g among them, in which it counts.
func owe(g grid, q *Quota, now, n, at int64, carries bool) {
	counts, all := g.owes(q, at, now), *g.others()
	if all != nil {
		for i := range all.list {
			other := all.list[i].grid
			counts = counts || other != nil && other.owes(nil, at, now)
		}
	}
	if !counts {
		return
	}
	if all != nil {
		charge(g, now, n, at, carries)
	}
	if g.owes(q, at, now) {
		g.owe(n, at)
	}
}

// giveBack gives units back to all grids that were charged for them, and returns the most that one
// got.
func giveBack(g grid, r *Return, now int64) (given int64) {
	all := *g.others()
	if all == nil {
		all = &grids{list: []gridOf{{}}}
	}
	for i := range all.list {
		v := &all.list[i]
		one := v.of(g)
		var n int64
		switch mine := one.cuts(&r.Quota); {
		case v.came > r.At:
		case mine:
			n = one.giveBack(&r.Quota, r.Cost, r.At, now)
		case len(all.list) > 1: // or it may not have been charged
			n = one.giveBack(nil, r.Cost, r.At, now)
		}
		if given = max(given, n); n > 0 && one.holds() == 0 && v.extra > 0 {
			one.(*windowState).reopen(&r.Quota, v.limit+v.extra, now) // nothing else carries units
			v.extra = 0
		}
	}
	if *g.others() == nil || given == 0 {
		return given
	}
	if all.fresh(g, 0) { // nothing is left
		g.lay(&r.Quota)
		*g.others() = nil
	} else if v := &all.list[0]; len(all.list) == 1 && v.extra == 0 && v.of(g).above(0, v.limit) == 0 {
		if v.grid != nil {
			g.swap(v.grid)
		}
		*g.others() = nil
	}
	return given
}

// expires returns when the last grid of a key is as good as new and, of several, goes.
func expires(g grid) int64 {
	ends := g.ends()
	if all := *g.others(); all != nil {
		for i := range all.list {
			v := &all.list[i]
			ends = max(ends, v.ends(g), v.goes(g), v.of(g).lasts())
		}
	}
	return ends
}

// sooner returns when something comes about at g that would in so many µs: at the latest when all
// grids are as good as new.
func sooner(g grid, now, after int64) int64 {
	if all := *g.others(); all != nil && all.own == len(all.list) {
		ends := now
		for i := range all.list {
			ends = max(ends, all.list[i].ends(nil))
		}
		return min(after, ends-now)
	}
	return after
}

// clone returns a copy of the grids of a key but the state itself.
func (a *grids) clone() *grids {
	if a == nil {
		return nil
	}
	list := slices.Clone(a.list)
	for i := range list {
		if list[i].grid != nil {
			list[i].grid = list[i].grid.Clone().(grid)
		}
	}
	return &grids{list, a.own, a.limit, a.extra}
}
