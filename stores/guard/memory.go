package guard

import (
	"context"
	"sync"

	"github.com/routelimit/limit/core"
)

// copies are the charges of a call as the memory decides them: each with the share of this
// instance. The memory counts a charge that yields as well, but never refuses it.
type copies struct {
	charges []core.Charge // in all, or those of the call
	yields  set
	raised  set // yields, and needed a wider quota
	used    int // of all
	all     [core.MaxCharges]core.Charge
	ask     [1]core.Ask // of the memory: here, it allocates nothing
}

var pool = sync.Pool{New: func() any { return new(copies) }}

// shares returns copies that all refuse beyond the share of this instance. Free them after use.
func (c *call) shares() *copies {
	m := pool.Get().(*copies)
	m.used = copy(m.all[:], c.charges)
	m.charges = m.all[:m.used]
	if c.guard.instances == 1 {
		return m
	}
	for i := range m.charges {
		m.charges[i].Quota = c.charges[i].Quota.Share(c.guard.instances)
		m.charges[i].Reserve = core.CeilDiv(c.charges[i].Reserve, c.guard.instances)
		m.charges[i].MaxDebt = core.CeilDiv(c.charges[i].MaxDebt, c.guard.instances)
	}
	return m
}

// same returns what counts an admission by the store: the charges themselves, which are not
// changed, if this instance has the full limits.
func (c *call) same() *copies {
	if c.guard.instances > 1 {
		m := c.shares()
		for i := range m.charges {
			if m.charges[i].Quota.Bars() {
				m.yields.add(i)
			}
		}
		return m
	}
	m := pool.Get().(*copies)
	m.charges = c.charges
	return m
}

// copies returns copies that refuse as the plan wants: doubtful charges beyond
// the share, charges in overflow beyond their full quota, and others never.
func (c *call) copies() *copies {
	m := c.shares()
	for i := range m.charges {
		m.charges[i].MaxDebt = 0 // what the store has taken
		switch {
		case c.doubtful.has(i):
		case c.overflow.has(i):
			m.charges[i].Quota, m.charges[i].Reserve = c.full(i), c.charges[i].Reserve
		default:
			m.yields.add(i)
			m.charges[i].Reserve = 0 // the store has kept it
		}
	}
	return m
}

// full returns the quota by which the memory counts all that the i-th charge admits, over all
// instances.
func (c *call) full(i int) core.Quota {
	if c.guard.instances == 1 {
		return c.charges[i].Quota
	}
	return c.charges[i].Quota.Wider(c.guard.instances, 1)
}

func (m *copies) free() {
	clear(m.all[:m.used])
	m.charges, m.yields, m.raised, m.used, m.ask[0].Charges = nil, 0, 0, 0, nil
	pool.Put(m)
}

// look makes the copies cost nothing.
func (m *copies) look() {
	for i := range m.charges {
		m.charges[i].Cost = 0
	}
}

// takeCopies takes copies from the memory. If only copies that yield have no room, it gives them
// room for twice what the rule admits. Beyond that, they are counted as far as there is room. A ban
// that yields is left out: the memory counts only the strikes of what it decides itself. The decision
// is part of the copies.
func (c *call) takeCopies(m *copies) (*core.Decision, error) {
	for i := range m.charges {
		if q := &m.charges[i].Quota; q.Bars() && m.yields.has(i) {
			*q, m.charges[i].Cost = core.Quota{Limit: 1, Window: q.Window}, 0 // a look at a key that has no such state
		}
	}
	for {
		d, err := c.takeOwn(m)
		if err != nil || d.Allowed || m.refused(d) {
			return d, err
		}
		for i, o := range d.Outcomes() {
			switch {
			case o.Fits():
			case m.raised.has(i):
				m.charges[i].Cost = min(m.charges[i].Cost-1, o.Remaining)
			default:
				m.charges[i].Quota = c.charges[i].Quota.Wider(c.guard.instances, 2)
				m.raised.add(i)
			}
		}
	}
}

func (c *call) takeOwn(m *copies) (*core.Decision, error) {
	d := &m.ask[0].Decision
	m.ask[0].Charges = m.charges
	if err := c.guard.own.Take(context.Background(), m.ask[:]); err != nil {
		*d = core.Decision{}
		return d, err
	}
	c.noticed(m.charges, d)
	return d, nil
}

// refused reports whether a copy that does not yield has no room.
func (m *copies) refused(d *core.Decision) bool {
	for i, o := range d.Outcomes() {
		if !o.Fits() && !m.yields.has(i) {
			return true
		}
	}
	return false
}

func (c *call) undoCopies(m *copies, d *core.Decision) {
	_ = core.Undo(context.Background(), c.guard.own, m.charges, d)
}

// local marks d, of copies of the charges, as a decision without the store. What is more
// than a share may be admitted when the store is asked again.
func (c *call) local(d *core.Decision) {
	d.Mode = core.ModeLocal
	for i := range d.Outcomes() {
		of, o := &c.charges[i], &d.Outcomes()[i]
		if o.RetryAfter != core.Never || of.Cost+of.Reserve > of.Quota.Capacity() {
			continue
		}
		o.RetryAfter = max(o.ResetAfter, c.guard.breaker.probeIn(c.now))
		if c.doubtful.has(i) { // the share decides until then, whatever the store says
			o.RetryAfter = max(o.RetryAfter, c.guard.remaining(of, c.now))
		}
	}
}
