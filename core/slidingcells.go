package core

import "slices"

// SlidingCells admits at most Limit units in any window, as [SlidingLog] does. It
// cuts the window into Cells and keeps one count for each. A cell counts in full
// until all of it has left the window.
//
// Trade-off: a unit counts for up to one cell longer than the window, so a key
// that has used its limit waits up to Window/Cells too long. The length of a
// cell is rounded up to a microsecond.
//
// When the clock steps back, the counts of cells ahead of now are added to the
// cell of now.
const SlidingCells Algorithm = 2

// A cellsState holds how many units were taken in each of the last cells.
type cellsState struct {
	Base
	counts []int64 // of the cells newest-len+1 … newest
	newest int64   // the number of the last cell that was taken from
	length int64   // of a cell, µs

	now, cell, limit, used int64 // of the last Advance
	keep                   int64 // cells that count
}

// cellLength returns how long a cell of q is, rounded up.
func (q *Quota) cellLength() int64 { return CeilDiv(q.Window, q.Cells) }

func (c *cellsState) Advance(q *Quota, now int64) int64 {
	length := q.cellLength()
	c.now, c.limit, c.keep = now, q.Limit, q.Cells+1
	c.cell = now / length
	if c.length != length || int64(len(c.counts)) != c.keep || c.newest > c.cell {
		c.relay(length)
	}
	c.used = 0
	for i := range c.keep {
		c.used += c.at(c.cell - i)
	}
	return c.limit - c.used
}

// at returns the count of a cell.
func (c *cellsState) at(cell int64) int64 {
	if cell > c.newest || cell <= c.newest-c.keep || cell < 0 {
		return 0
	}
	return c.counts[cell%c.keep]
}

// relay lays the cells anew, for another length or number of them, or since the clock has
// stepped back. A cell that spans several of the new ones counts in the last, and one
// ahead of now in that of now.
func (c *cellsState) relay(length int64) {
	old, n := c.counts, int64(len(c.counts))
	newest, oldLength := c.newest, c.length
	c.counts, c.length, c.newest = make([]int64, c.keep), length, c.cell
	for i := range n {
		cell := min(((newest-i+1)*oldLength-1)/length, c.cell)
		if newest-i >= 0 && cell > c.cell-c.keep {
			c.counts[cell%c.keep] += old[(newest-i)%n]
		}
	}
}

func (c *cellsState) Take(n int64, _ uint64) (room, delay int64) {
	c.add(c.cell, n)
	return c.limit - c.used, 0
}

// Owe implements [State]: the units count in the cell of that time.
func (c *cellsState) Owe(_ *Quota, n, at int64, _ uint64) {
	if cell := at / c.length; cell > c.cell-c.keep {
		c.add(cell, min(n, MaxCost-c.used))
	}
}

// add adds units to a cell that is in the window.
func (c *cellsState) add(cell, n int64) {
	for cell := max(c.newest+1, c.cell-c.keep+1); cell <= c.cell; cell++ {
		c.counts[cell%c.keep] = 0
	}
	c.newest = c.cell
	c.counts[cell%c.keep] += n
	c.used += n
}

func (c *cellsState) Used() int64 { return c.used }

// After implements [State]: the oldest cells must leave.
func (c *cellsState) After(n int64) int64 {
	for i := c.keep - 1; i >= 0; i-- {
		if n -= c.at(c.cell - i); n <= 0 {
			return (c.cell-i+c.keep)*c.length - c.now
		}
	}
	return 0 // n is more than Used
}

func (c *cellsState) Expires() int64 {
	for i := range int64(len(c.counts)) {
		if c.at(c.newest-i) > 0 {
			return (c.newest - i + c.keep) * c.length
		}
	}
	return 0
}

// Return implements [State], while the cell of At is in the window. Cells that
// another quota has laid give nothing back.
func (c *cellsState) Return(r *Return, now int64) int64 {
	keep, length := r.Quota.Cells+1, r.Quota.cellLength()
	cell := r.At / length
	if c.length != length || int64(len(c.counts)) != keep || r.At > now || cell <= now/length-keep ||
		cell > c.newest || cell <= c.newest-keep {
		return 0
	}
	given := min(r.Cost, c.counts[cell%keep])
	c.counts[cell%keep] -= given
	return given
}

func (c *cellsState) Clone() State {
	copied := *c
	copied.counts = slices.Clone(c.counts)
	return &copied
}
