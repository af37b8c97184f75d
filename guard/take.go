package guard

import (
	"errors"

	"github.com/routelimit/limit/core"
)

// takeHealthy returns what the store decides, and counts what it admits.
func (c *call) takeHealthy() (core.Decision, error) {
	d, err := c.ask(c.charges)
	if err != nil || !d.Allowed {
		return d, err
	}
	if at, fits := c.fitsShare(); fits {
		d.Tag = at
		return d, nil
	}
	return c.count(c.charges, d)
}

// takeBoth admits what both the store and the memory admit.
func (c *call) takeBoth() (core.Decision, error) {
	own, room, err := c.room()
	if err != nil {
		return core.Decision{}, err
	}
	if !room {
		if c.doubtful != 0 || c.probe {
			// Ask the store all the same. Otherwise this process may miss that the
			// store fails and loses its data before it is trusted again.
			err = c.lookUp()
		}
		return own, err
	}
	d, asked, err := c.askShared()
	if err != nil {
		return core.Decision{}, err
	}
	if d.Allowed {
		return c.count(asked, d)
	}
	c.restrict(&d, &own)
	return d, nil
}

// errMoved means that the memory charged a key's own quota although the store
// charged an overflow quota: the memory got room in between. Nothing was taken.
var errMoved = errors.New("the key has left its overflow quota")

// takeOverflow is takeBoth where keys share overflow quotas.
func (c *call) takeOverflow() (core.Decision, error) {
	d, err := c.takeBoth()
	for err == errMoved {
		c.classify()
		d, err = c.takeBoth()
	}
	if err == nil && d.Mode < core.ModeLocal {
		for i := range c.charges {
			switch {
			case c.shared.has(i):
				d.SetOverflow(i, core.SharedQuota)
			case c.overflow.has(i):
				d.SetOverflow(i, core.BothQuotas)
			}
		}
	}
	return d, err
}

// ask asks the store.
func (c *call) ask(charges []core.Charge) (core.Decision, error) {
	d, err := c.guard.store.Take(c.ctx, c.policy, charges)
	c.ended(err)
	if err == nil {
		c.guard.outage.answered(c.now)
	}
	return d, err
}

// lookUp asks the store without taking anything.
func (c *call) lookUp() error {
	m := c.shares()
	defer m.free()
	m.look()
	for i := range m.charges {
		m.charges[i].Quota = c.charges[i].Quota
	}
	_, err := c.ask(m.charges)
	return err
}

// fitsShare counts the charges in memory if they fit into the share of this
// instance, and returns when it did.
func (c *call) fitsShare() (at int64, fits bool) {
	if c.guard.instances == 1 {
		own, err := c.takeOwn(c.charges)
		return own.At, err == nil && own.Allowed
	}
	m := c.shares()
	defer m.free()
	own, err := c.takeCopies(m)
	return own.At, err == nil && own.Allowed
}

// room asks the memory first: what it refuses is not sent to the store. It
// returns what the memory has left, or its refusal.
func (c *call) room() (own core.Decision, room bool, err error) {
	for {
		left, room, err := c.look()
		if err != nil || room {
			return left, room, err
		}
		// Only a take says when to retry.
		m := c.copies()
		own, err := c.takeCopies(m)
		refused := err != nil || !own.Allowed
		if !refused {
			c.undoCopies(m, &own) // room has come since the look
		}
		m.free()
		if refused {
			c.refusal(&own)
			return own, false, err
		}
	}
}

// look returns what the memory has left, and whether it has room for the charges
// that it must admit.
func (c *call) look() (left core.Decision, room bool, err error) {
	m := c.copies()
	defer m.free()
	m.look()
	if left, err = c.takeCopies(m); err != nil {
		return left, false, err
	}
	for i, o := range left.Outcomes() {
		if c.charges[i].Cost > o.Remaining && !m.yields.has(i) {
			return left, false, nil
		}
	}
	return left, true, nil
}

// refusal makes d, a refusal by the memory, that of the call.
func (c *call) refusal(d *core.Decision) {
	c.local(d)
	if c.doubtful == 0 {
		d.Mode = core.ModeOverflow
	}
}

// count counts in memory what the store has admitted, charged as asked. It
// returns d unless the memory refuses, or this process has begun meanwhile to
// decide these charges without the store.
func (c *call) count(asked []core.Charge, d core.Decision) (core.Decision, error) {
	m := c.copies()
	defer m.free()
	own, err := c.takeCopies(m)
	if err != nil || !own.Allowed { // other requests have come meanwhile
		c.undo(asked, &d)
		c.refusal(&own)
		return own, err
	}
	if c.moved(asked, &own) {
		c.undoCopies(m, &own)
		c.undo(asked, &d)
		return core.Decision{}, errMoved
	}
	// Read the doubts after the memory has counted. A decision without the store
	// notes its doubts before it asks the memory: so either it finds this request
	// counted, or this request finds the doubts.
	if c.guard.doubts.of(c.policy, c.charges, c.guard.now())&^c.doubtful != 0 {
		c.undoCopies(m, &own)
		again, err := c.takeShare()
		if err != nil || !again.Allowed {
			c.undo(asked, &d)
		}
		return again, err
	}
	if c.doubtful|c.overflow != 0 {
		c.restrict(&d, &own)
		d.Delay = max(d.Delay, own.Delay)
	}
	d.Tag = own.At
	return d, nil
}

// undo gives back to the store what d took. If that fails, it still counts
// there, which is safe.
func (c *call) undo(asked []core.Charge, d *core.Decision) {
	c.ended(core.Undo(c.ctx, c.guard.store.Store, c.policy, asked, d))
}

// restrict lowers what d reports as left to what the memory has left, for the
// charges that the memory must admit.
func (c *call) restrict(d, own *core.Decision) {
	for i, o := range own.Outcomes() {
		of := &d.Outcomes()[i]
		if (c.doubtful | c.overflow).has(i) && of.Fits() && o.Remaining < of.Remaining {
			*of = o
		}
	}
}
