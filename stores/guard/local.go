package guard

import (
	"slices"

	"github.com/routelimit/limit/core"
)

// takeLocal decides without the store, as the OnError of each rule says, and logs the reason.
func (c *call) takeLocal(d *core.Decision, reason error) (err error) {
	if slices.ContainsFunc(c.charges, func(c core.Charge) bool { return c.OnError == core.Refuse && needs(&c) }) {
		*d, err = c.refuse()
	} else {
		*d, err = c.takeShare()
	}
	if err != nil {
		return err
	}
	c.report(d)
	c.decidedAlone(d.Mode, reason)
	return nil
}

// takeShare decides by the share of this instance. A rule that wants Allow never refuses, but what
// it admits is counted, except in a queue: no request waits for a slot there.
func (c *call) takeShare() (core.Decision, error) {
	c.begin()
	admitted := false
	defer func() { c.end(admitted) }()
	m := c.shares()
	defer m.free()
	mode := core.ModeLocal
	for i := range c.charges {
		if c.charges[i].OnError != core.Allow {
			continue
		}
		if c.charges[i].Cost > 0 {
			mode = core.ModeAllowed
		}
		m.yields.add(i)
		m.charges[i].Reserve = 0
		if c.charges[i].Quota.Queues() {
			m.charges[i].Cost = 0
		}
	}
	d, err := c.takeCopies(m)
	if err != nil {
		return *d, err
	}
	c.local(d)
	if admitted = d.Allowed; admitted {
		d.Mode = mode
		c.forgive(d.Forgiven)
	}
	return *d, nil
}

// needs reports whether a charge can be refused: whether it is more than a look, which it
// always is for a ban, and no debt.
func needs(c *core.Charge) bool { return !c.Debt && (c.Cost > 0 || c.Quota.Bars()) }

// refuse refuses because a rule wants that. For rules with Local, it reports what the share has
// left.
func (c *call) refuse() (core.Decision, error) {
	c.guard.doubts.failed(c.now)
	m := c.shares()
	defer m.free()
	m.look()
	d, err := c.takeCopies(m)
	if err == nil {
		d.Allowed, d.Mode = false, core.ModeRefused
	}
	return *d, err
}

// report makes the outcomes of rules that do not want Local say what a request meets while the
// store is unavailable: Allow has all of its quota left, and Refuse has nothing until the next
// probe.
func (c *call) report(d *core.Decision) {
	for i := range c.charges {
		o, next := &d.Outcomes()[i], c.guard.breaker.probeIn(c.now)
		switch {
		case c.charges[i].OnError == core.Allow:
			*o = core.Outcome{Remaining: c.charges[i].Quota.Capacity()}
		case c.charges[i].OnError == core.Refuse && needs(&c.charges[i]):
			*o = core.Outcome{RetryAfter: next}
		case c.charges[i].OnError == core.Refuse:
			*o = core.Outcome{MoreAfter: next}
		}
	}
}
