package core

import "slices"

// SlidingCells admits at most Limit units in any window, as [SlidingLog] does. It
// cuts the window into Cells and keeps one count for each. A cell counts in full
// until all of it has left the window.
//
// Trade-off: a unit counts for up to one cell longer than the window, so a key that has used its
// limit waits up to Window/Cells too long. The length of a cell is rounded up to a microsecond.
//
// When the clock steps back, the counts of cells ahead of now are added to the cell of now.
const SlidingCells Algorithm = 2

// A cellsState has the counts of the last cells. Its grid is their length and number.
type cellsState struct {
	cut
	counts []int64 // of the cells up to that of last
	length int64   // of a cell, µs
	last   int64   // when a unit was taken

	now, cell, limit, used int64 // of the last Advance
}

// cellLength returns how long a cell of q is, rounded up.
func (q *Quota) cellLength() int64 { return CeilDiv(q.Window, q.Cells) }

func (c *cellsState) Advance(q *Quota, now int64) int64 {
	if c.grids != nil || !c.cuts(q) {
		turnTo(c, q, now)
	}
	c.limit = q.Limit
	c.enter(now)
	return c.limit - c.used
}

// cuts compares the length of a cell without a division.
func (c *cellsState) cuts(q *Quota) bool {
	return c.keep() == q.Cells+1 && c.length*q.Cells >= q.Window && (c.length-1)*q.Cells < q.Window
}

func (c *cellsState) lay(q *Quota) {
	c.counts, c.length, c.last = make([]int64, q.Cells+1), q.cellLength(), 0
}

// fill implements [grid]: a cell that spans several of the new ones counts in the last.
func (c *cellsState) fill(other grid, at int64) {
	o := other.(*cellsState)
	c.last = at
	newest, keep := o.last/o.length, c.keep()
	for cell := max(0, newest-o.keep()+1); cell <= newest; cell++ {
		if to := min((cell+1)*o.length-1, at) / c.length; to > at/c.length-keep {
			c.counts[to%keep] += o.counts[cell%o.keep()]
		}
	}
}

func (c *cellsState) enter(now int64) {
	c.now, c.cell, c.used = now, now/c.length, 0
	newest, keep := c.last/c.length, c.keep()
	if newest > c.cell { // the clock has stepped back
		c.redate(newest)
		newest = c.cell
	}
	i := newest % keep
	for range keep - min(c.cell-newest, keep) {
		c.used += c.counts[i]
		if i--; i < 0 {
			i = keep - 1
		}
	}
}

// keep returns how many cells count.
func (c *cellsState) keep() int64 { return int64(len(c.counts)) }

// redate adds the counts of the cells ahead of now to that of now.
func (c *cellsState) redate(newest int64) {
	old, keep := c.counts, c.keep()
	c.counts, c.last = make([]int64, keep), c.now
	for cell := max(0, newest-keep+1, c.cell-keep+1); cell <= newest; cell++ {
		c.counts[min(cell, c.cell)%keep] += old[cell%keep]
	}
}

func (c *cellsState) Take(n int64, _ uint64) (room, delay int64) {
	if c.grids != nil {
		charge(c, c.now, n, c.now, false)
	}
	c.add(c.cell, n)
	return c.limit - c.used, 0
}

func (c *cellsState) Refuse(bool) bool { return join(c, c.now) }

// Owe implements [State]: the units count in the cell of that time.
func (c *cellsState) Owe(q *Quota, n, at int64, _ uint64, _ bool) { owe(c, q, c.now, n, at, false) }

func (c *cellsState) owes(_ *Quota, at, now int64) bool { return at/c.length > now/c.length-c.keep() }

func (c *cellsState) owe(n, at int64) { c.add(at/c.length, min(n, MaxCost-c.used)) }

// add adds units to a cell that is in the window.
func (c *cellsState) add(cell, n int64) {
	keep := c.keep()
	for cell := max(c.last/c.length+1, c.cell-keep+1); cell <= c.cell; cell++ {
		c.counts[cell%keep] = 0
	}
	c.last = c.now
	c.counts[cell%keep] += n
	c.used += n
}

func (c *cellsState) Used() int64 { return c.used }

// After implements [State]: the oldest cells must leave.
func (c *cellsState) After(n int64) int64 {
	newest, keep := c.last/c.length, c.keep()
	for cell := max(0, c.cell-keep+1); cell <= newest; cell++ {
		if n -= c.counts[cell%keep]; n <= 0 {
			after := (cell+keep)*c.length - c.now
			if c.grids == nil {
				return after
			}
			return sooner(c, c.now, after)
		}
	}
	return 0 // n is more than Used
}

func (c *cellsState) Expires() int64 {
	if c.grids == nil {
		return c.ends()
	}
	return expires(c)
}

func (c *cellsState) ends() int64 {
	keep := c.keep()
	if keep == 0 {
		return 0
	}
	newest := c.last / c.length
	for cell := newest; cell > max(-1, newest-keep); cell-- {
		if c.counts[cell%keep] > 0 {
			return (cell + keep) * c.length
		}
	}
	return 0
}

func (c *cellsState) taken() int64 { return c.last }
func (c *cellsState) span() int64  { return c.keep() * c.length }
func (c *cellsState) holds() int64 { return c.span() }

// Return implements [State], while the cell of At is in the window.
func (c *cellsState) Return(r *Return, now int64) int64 { return giveBack(c, r, now) }

func (c *cellsState) giveBack(_ *Quota, n, at, now int64) int64 {
	cell, newest, keep := at/c.length, c.last/c.length, c.keep()
	if at > now || cell <= now/c.length-keep || cell > newest || cell <= newest-keep {
		return 0
	}
	given := min(n, c.counts[cell%keep])
	c.counts[cell%keep] -= given
	return given
}

func (c *cellsState) empty() grid     { return &cellsState{} }
func (c *cellsState) swap(other grid) { exchange(c, other.(*cellsState)) }

func (c *cellsState) Clone() State {
	copied := *c
	copied.counts, copied.grids = slices.Clone(c.counts), c.grids.clone()
	return &copied
}
