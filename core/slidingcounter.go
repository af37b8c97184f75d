package core

// SlidingCounter admits about Limit units in a window. It keeps the counts of the
// current and the previous window of the clock. The previous count is weighted by
// the part of that window which a window ending now still covers, rounded up.
//
// Trade-off: it assumes that the units of the previous window were spread evenly. A burst at the
// end of that window is forgotten too early, so up to twice the limit can fall into one window. A
// burst at its beginning counts for too long.
//
// When the clock steps back into an earlier window, what was taken since counts
// in the window of now.
//
// The method is Cloudflare's, "How we built rate limiting capable of scaling to
// millions of domains" (2017).
const SlidingCounter Algorithm = 3

// A counterState holds the counts of two windows. Its grid is the length of a window.
type counterState struct {
	cut
	last              int64 // when a unit was taken: in the current window
	current, previous int64
	window            int64

	// of the last Advance
	limit, now, at, cur, prev int64
}

func (c *counterState) Advance(q *Quota, now int64) int64 {
	if c.grids != nil || !c.cuts(q) {
		turnTo(c, q, now)
	}
	c.limit = q.Limit
	c.enter(now)
	return c.limit - c.Used()
}

func (c *counterState) cuts(q *Quota) bool { return c.window == q.Window }

func (c *counterState) lay(q *Quota) { c.window, c.last, c.current, c.previous = q.Window, 0, 0, 0 }

// fill implements [grid]: the units of a window count at its end.
func (c *counterState) fill(other grid, at int64) {
	o := other.(*counterState)
	c.last = at
	c.add(at, at, o.current)
	if begins := o.last / o.window * o.window; begins > 0 {
		c.add(at, min(begins-1, at), o.previous)
	}
}

// add adds units to the window that a time is in, if that is the current or the previous one.
func (c *counterState) add(now, at, n int64) {
	switch at / c.window {
	case now / c.window:
		c.current += n
	case now/c.window - 1:
		c.previous += n
	}
}

func (c *counterState) enter(now int64) {
	c.now, c.at = now, now/c.window
	from := c.at * c.window
	if c.last >= from+c.window { // the clock has stepped back
		c.last, c.current, c.previous = now, c.current+c.previous, 0
	}
	switch {
	case c.last >= from:
		c.cur, c.prev = c.current, c.previous
	case c.last >= from-c.window:
		c.cur, c.prev = 0, c.current
	default:
		c.cur, c.prev = 0, 0
	}
}

// left returns how many µs of the current window are left.
func (c *counterState) left() int64 { return (c.at+1)*c.window - c.now }

// weighted returns how much of a previous count still counts with left µs of the window left.
func (c *counterState) weighted(count, left int64) int64 {
	q, r := MulDiv(count, left, c.window)
	if r > 0 {
		q++
	}
	return q
}

func (c *counterState) Take(n int64, _ uint64) (room, delay int64) {
	if c.grids != nil {
		charge(c, c.now, n, c.now, false)
	}
	c.cur += n
	c.last, c.current, c.previous = c.now, c.cur, c.prev
	return c.limit - c.Used(), 0
}

func (c *counterState) Refuse(bool) bool { return join(c, c.now) }

// Owe implements [State]: the units count in the window of that time, current or previous.
func (c *counterState) Owe(q *Quota, n, at int64, _ uint64, _ bool) { owe(c, q, c.now, n, at, false) }

func (c *counterState) owes(_ *Quota, at, now int64) bool { return now/c.window-at/c.window <= 1 }

func (c *counterState) owe(n, at int64) {
	c.last, c.current, c.previous = c.now, c.cur, c.prev
	c.add(c.now, at, min(n, MaxCost-c.cur-c.prev))
	c.cur, c.prev = c.current, c.previous
}

func (c *counterState) Used() int64 { return c.cur + c.weighted(c.prev, c.left()) }

// After implements [State]: the weight of the previous window fades, then that of the current one.
func (c *counterState) After(n int64) int64 {
	after := c.left()
	if fading := c.weighted(c.prev, after); n <= fading {
		after -= c.until(c.prev, fading-n)
	} else {
		after += c.window - c.until(c.cur, c.cur-(n-fading))
	}
	if c.grids == nil {
		return after
	}
	return sooner(c, c.now, after)
}

// until returns the most µs that may be left for a previous count to weigh no more than want.
func (c *counterState) until(count, want int64) int64 {
	q, _ := MulDiv(want, c.window, count)
	return q
}

func (c *counterState) Expires() int64 {
	if c.grids == nil {
		return c.ends()
	}
	return expires(c)
}

func (c *counterState) ends() int64 {
	if c.current+c.previous == 0 {
		return 0
	}
	return (c.last/c.window + 2) * c.window
}

func (c *counterState) taken() int64 { return c.last }
func (c *counterState) span() int64  { return 2 * c.window }
func (c *counterState) holds() int64 { return c.window }

// Return implements [State], while At is in the current or the previous window.
func (c *counterState) Return(r *Return, now int64) int64 { return giveBack(c, r, now) }

func (c *counterState) giveBack(_ *Quota, n, at, now int64) (given int64) {
	index := at / c.window
	if at > now || now/c.window-index > 1 {
		return 0
	}
	switch index {
	case c.last / c.window:
		given = min(n, c.current)
		c.current -= given
	case c.last/c.window - 1:
		given = min(n, c.previous)
		c.previous -= given
	}
	return given
}

func (c *counterState) empty() grid     { return &counterState{} }
func (c *counterState) swap(other grid) { exchange(c, other.(*counterState)) }

func (c *counterState) Clone() State {
	copied := *c
	copied.grids = c.grids.clone()
	return &copied
}
