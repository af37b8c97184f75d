package guard

import (
	"context"
	"slices"

	"github.com/routelimit/limit/core"
)

// Charges that decide alone never refuse, so the memory need not admit them. Their
// copies cost nothing: the store decides them once, with the others, or the memory
// does if the store has not. What was taken is counted in memory at the end, for an
// outage to begin with. While the store may not know what was taken in an outage,
// their outcomes are those of the store.

// findAlone finds the charges that decide alone.
func (c *call) findAlone() {
	for i := range c.charges {
		if c.charges[i].Alone && c.charges[i].Cost > 0 {
			c.alone.add(i)
		}
	}
}

// askAll asks the store for all charges, and keeps its decision on those that decide
// alone. If they have been decided, they are not charged again.
func (c *call) askAll(charges []core.Charge, d *core.Decision) error {
	if c.alone == 0 {
		return c.ask(charges, d)
	}
	if c.watched != nil {
		charges = slices.Clone(charges)
		for i := range charges {
			if c.alone.has(i) {
				charges[i].Cost = 0
			}
		}
		return c.ask(charges, d)
	}
	err := c.ask(charges, d)
	if err == nil {
		watched := *d
		c.watched = &watched
	}
	return err
}

// watch makes d say how the charges that decide alone were decided: by the store or,
// if it was not asked, by OnError of each rule. It counts in memory what they took.
func (c *call) watch(d *core.Decision) error {
	m := c.shares()
	defer m.free()
	n := 0
	var at [core.MaxCharges]int
	for i := range c.charges {
		if !c.alone.has(i) || !c.counts(i) {
			continue
		}
		m.charges[n], at[n] = m.charges[i], i
		m.charges[n].Cost = c.charges[i].Cost
		n++
	}
	var own core.Decision
	if n > 0 {
		var err error
		if own, err = c.guard.own.Take(context.Background(), c.policy, m.charges[:n]); err != nil {
			return err
		}
		c.noticed(m.charges[:n], &own)
	}
	for i := range c.charges {
		if c.alone.has(i) && c.watched != nil {
			d.Outcomes()[i] = c.watched.Outcomes()[i]
		}
	}
	for j, i := range at[:n] {
		if c.watched == nil && c.charges[i].OnError == core.Local {
			d.Outcomes()[i] = own.Outcomes()[j]
			c.localOutcome(i, &d.Outcomes()[i])
		}
	}
	return nil
}

// counts reports whether the memory counts the i-th charge, which decides alone: what
// the store took or, without the store, what a rule does not refuse or let wait.
func (c *call) counts(i int) bool {
	if c.watched != nil {
		return c.watched.Took(i)
	}
	switch charge := &c.charges[i]; charge.OnError {
	case core.Local:
		return true
	case core.Allow:
		return !charge.Quota.Queues()
	}
	return false
}
