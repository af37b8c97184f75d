package core

// SlidingCounter admits about Limit units in a window. It keeps the counts of the
// current and the previous window of the clock. The previous count is weighted by
// the part of that window which a window ending now still covers, rounded up.
//
// Trade-off: it assumes that the units of the previous window were spread
// evenly. A burst at the end of that window is forgotten too early, so up to
// twice the limit can fall into one window. A burst at its beginning counts for
// too long.
//
// When the clock steps back into an earlier window, what was taken since counts
// in the window of now.
//
// The method is Cloudflare's, "How we built rate limiting capable of scaling to
// millions of domains" (2017).
const SlidingCounter Algorithm = 3

// A counterState holds the counts of two windows.
type counterState struct {
	Base
	index             int64 // the number of the current window
	current, previous int64
	window            int64

	// of the last Advance
	limit, now, at, cur, prev, left int64 // left: µs of the current window
}

func (c *counterState) Advance(q *Quota, now int64) int64 {
	if c.window != q.Window {
		// Another grid: all that was spent counts in the window of now.
		if c.current+c.previous > 0 && now < (c.index+2)*c.window {
			c.index, c.current, c.previous = now/q.Window, c.current+c.previous, 0
		} else {
			c.index, c.current, c.previous = 0, 0, 0
		}
		c.window = q.Window
	}
	c.limit, c.now, c.at = q.Limit, now, now/q.Window
	c.left = (c.at+1)*q.Window - now
	if c.index > c.at { // the clock has stepped back
		c.index, c.current, c.previous = c.at, c.current+c.previous, 0
	}
	switch c.at - c.index {
	case 0:
		c.cur, c.prev = c.current, c.previous
	case 1:
		c.cur, c.prev = 0, c.current
	default:
		c.cur, c.prev = 0, 0
	}
	return c.limit - c.Used()
}

// weighted returns what count units of the previous window count while left µs
// of the current one are left.
func (c *counterState) weighted(count, left int64) int64 {
	q, r := MulDiv(count, left, c.window)
	if r > 0 {
		q++
	}
	return q
}

func (c *counterState) Take(n int64, _ uint64) (room, delay int64) {
	c.cur += n
	c.index, c.current, c.previous = c.at, c.cur, c.prev
	return c.limit - c.Used(), 0
}

// Owe implements [State]: the units count in the window of that time, if it is the
// current or the previous one.
func (c *counterState) Owe(q *Quota, n, at int64, _ uint64) {
	n = min(n, MaxCost-c.cur-c.prev)
	switch at / q.Window {
	case c.at:
		c.cur += n
	case c.at - 1:
		c.prev += n
	default:
		return
	}
	c.index, c.current, c.previous = c.at, c.cur, c.prev
}

func (c *counterState) Used() int64 { return c.cur + c.weighted(c.prev, c.left) }

// After implements [State]. The weight of the previous window fades, and then
// that of the current one.
func (c *counterState) After(n int64) int64 {
	fading := c.weighted(c.prev, c.left)
	if n <= fading {
		return c.left - c.until(c.prev, fading-n)
	}
	return c.left + c.window - c.until(c.cur, c.cur-(n-fading))
}

// until returns the most µs that may be left of a window for count units of the
// one before to count as no more than want.
func (c *counterState) until(count, want int64) int64 {
	q, _ := MulDiv(want, c.window, count)
	return q
}

func (c *counterState) Expires() int64 {
	if c.current+c.previous == 0 {
		return 0
	}
	return (c.index + 2) * c.window
}

// Return implements [State], while the window of At is the current or the
// previous one.
func (c *counterState) Return(r *Return, now int64) int64 {
	window := r.Quota.Window
	index := r.At / window
	if c.window != window || r.At > now || now/window-index > 1 {
		return 0
	}
	var given int64
	switch index {
	case c.index:
		given = min(r.Cost, c.current)
		c.current -= given
	case c.index - 1:
		given = min(r.Cost, c.previous)
		c.previous -= given
	}
	return given
}

func (c *counterState) Clone() State {
	copied := *c
	return &copied
}
