package guard

import "github.com/routelimit/limit/core"

// A flow is what a quota that refills owes: a bucket or a queue. It refills meanwhile, so the
// time of each unit would matter. Instead, a flow is a bucket of its own, which was full at
// the time of its cell, has no limit, and refills at the rate of the quota.
//
// The store's bucket may have lacked tokens at that time. It has then refilled while no
// charge came, and what the debts would have delayed is lost: at most what came back since,
// and a burst, less what came back while this bucket was full. That is owed too.
type flow struct {
	full int64 // when it is full
	idle int64 // µs for which it was full, until then
	last int64 // when the last units were taken
}

func newCell(q *core.Quota, n, at int64) cell {
	c := cell{at: at, units: n}
	if q.Refills() {
		c.flow.full, c.flow.last = at+fills(q, n), at
	}
	return c
}

// fills returns how long a quota takes to refill n units.
func fills(q *core.Quota, n int64) int64 {
	whole, rest := core.MulDiv(n, q.Window, q.Limit)
	return whole + min(rest, 1)
}

// with returns both cells, of a quota that refills, as one.
func (c cell) with(d cell) cell {
	if d.at < c.at {
		c, d = d, c
	}
	c.units += d.units
	gap := d.flow.idle + d.at - c.flow.full // that is idle, or what c lacks beyond the idle time of d
	c.flow.idle += max(0, gap)
	c.flow.full = d.flow.full + max(0, -gap)
	c.flow.last = max(c.flow.last, d.flow.last)
	return c
}

// refilled returns what c, of a quota old, owes at a time, as units that refill by q from then on.
func (c cell) refilled(old, q *core.Quota, now int64) cell {
	if !q.Refills() || old.Limit == q.Limit && old.Window == q.Window {
		return c
	}
	d := newCell(q, c.owed(old, now), now)
	d.units, d.flow.last = c.units, c.flow.last
	return d
}

// owed returns how many units the store is to be charged for.
func (c *cell) owed(q *core.Quota, now int64) int64 {
	if !q.Refills() {
		if now-c.at >= q.Span() {
			return 0
		}
		return c.units
	}
	n, rest := core.MulDiv(c.lacks(q, now), q.Limit, q.Window)
	return n + min(rest, 1)
}

// lacks returns how many µs a quota that refills takes to refill what c owes.
func (c *cell) lacks(q *core.Quota, now int64) int64 {
	idle := c.flow.idle + max(0, now-c.flow.full)
	return max(0, c.flow.full-now) + max(0, min(now-c.at, q.Span())-idle)
}

// charged notes that the store's bucket is charged before c is paid: it was not full until then.
func (c *cell) charged(q *core.Quota, now int64) {
	c.at, c.flow.full, c.flow.idle = now, now+c.lacks(q, now), 0
}

// counts returns how many units more the store counts at least once it is charged for them, of a
// cell that is younger than the newest unit that the store has lost: no window began in between
// that counts those and not these.
func (c *cell) counts(q *core.Quota, now int64) int64 {
	if q.Algorithm != core.SlidingCounter {
		return c.owed(q, now)
	}
	n, _ := core.MulDiv(c.units, max(0, q.Window-(now-c.at)), q.Window)
	return n
}

func (c *cell) lower(q *core.Quota, n int64) {
	c.units -= n
	if q.Refills() {
		c.flow.full = max(c.at, c.flow.full-fills(q, n))
	}
}
