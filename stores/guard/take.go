package guard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// A call is one ask of a call of [Store.Take].
type call struct {
	attempt
	of       []core.Ask    // the one that it decides
	charges  []core.Charge // of it
	doubtful set           // the store may not know what this process admitted
	overflow set           // an overflow quota takes part in the decision of the memory
	shared   set           // the key has no other quota in memory

	held    *core.Hold // how the store holds what it has taken, or nil
	owed    bool       // what is decided without the store is a debt
	mayTake int64      // until when a call to the store may take leases of this one; 0 if none may
}

// take decides by the store, or by the store and the memory, and sets d. An error that
// wraps [core.ErrUnavailable] means that the request must be decided without the store.
func (c *call) take(d *core.Decision) error { // a pointer, since a copy costs as much as a hash
	defer c.leave()
	if !c.enter() {
		return errOpen
	}
	if c.guard.raises.lost.time() != never {
		c.guard.doubtful(c.charges, c.now) // what is to be raised is among the debts
	}
	if err := c.payFirst(); err != nil {
		return err
	}
	c.classify()
	switch {
	case c.overflow != 0: // the memory has no quota for a key, so it shares one here and in the store
		return c.takeOverflow(d)
	case c.doubtful != 0: // the store may not know units of a key, so the memory must admit too
		return c.takeBoth(d)
	}
	if err := c.ask(c.charges, d); err != nil || !d.Allowed {
		return err
	}
	return c.counted(d)
}

// classify finds the charges that the memory must admit too.
func (c *call) classify() {
	s := c.guard
	c.began = s.doubts.last.time()
	c.doubtful, c.overflow, c.shared = s.doubtful(c.charges, c.now), 0, 0
	if s.overflows(c.now) {
		c.findOverflow()
	}
}

// A set is a set of charges: bit i is charge i.
type set uint16

func (s set) has(i int) bool { return s>>i&1 != 0 }

func (s *set) add(i int) { *s |= 1 << i }

var _ [16 - core.MaxCharges]struct{} // a set has room for all charges of a call

// counted counts in memory what the store, which decides alone, has admitted: within the share
// of this instance if it fits there.
func (c *call) counted(d *core.Decision) error {
	m := c.same()
	own, err := c.takeCounted(m, d)
	counted := err == nil && own.Allowed
	if counted {
		d.Tag = own.At
	}
	m.free()
	if counted {
		return nil
	}
	return c.count(c.charges, d)
}

// takeCounted takes copies from the memory, of charges that the store has admitted by d, and
// compares what both count.
func (c *call) takeCounted(m *copies, d *core.Decision) (*core.Decision, error) {
	own, err := c.takeCopies(m)
	c.compare(m.charges, own, d)
	return own, err
}

// takeBoth admits what both the store and the memory admit.
func (c *call) takeBoth(d *core.Decision) error {
	own, ok, err := c.room()
	if err != nil {
		return err
	}
	if !ok {
		if c.doubtful != 0 || c.probe {
			// Ask the store all the same. Otherwise this process may miss that the
			// store fails and loses its data before it is trusted again.
			err = c.lookUp()
		}
		*d = own
		return err
	}
	asked, err := c.askShared(d)
	if err != nil {
		return err
	}
	if d.Allowed {
		return c.count(asked, d)
	}
	c.restrict(d, &own)
	return nil
}

// errMoved means that the memory charged a key's own quota although the store
// charged an overflow quota: the memory got room in between. Nothing was taken.
var errMoved = errors.New("the key has left its overflow quota")

// takeOverflow is takeBoth where keys share overflow quotas.
func (c *call) takeOverflow(d *core.Decision) error {
	err := c.takeBoth(d)
	for err == errMoved {
		c.classify()
		err = c.takeBoth(d)
	}
	if err != nil || d.Mode >= core.ModeLocal {
		return err
	}
	for i := range c.charges {
		switch {
		case c.shared.has(i):
			d.SetOverflow(i, core.SharedQuota)
		case c.overflow.has(i):
			d.SetOverflow(i, core.BothQuotas)
		}
	}
	return nil
}

func (c *call) ask(charges []core.Charge, d *core.Decision) error {
	asks := c.of
	if &charges[0] != &c.charges[0] {
		asks = []core.Ask{{Charges: charges}}
	}
	err := c.attempt.ask(asks)
	if d != &asks[0].Decision {
		*d = asks[0].Decision
	}
	if err != nil {
		c.unanswered(err) // only then: errors.As allocates
	}
	return err
}

// lookUp asks the store, and takes nothing.
func (c *call) lookUp() error {
	looks := slices.Clone(c.charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	var d core.Decision
	return c.ask(looks, &d)
}

// room asks the memory first, since the store is not asked for what the memory
// refuses. It returns what the memory has left, or its refusal.
func (c *call) room() (own core.Decision, ok bool, err error) {
	for {
		left, ok, err := c.look()
		if err != nil || ok {
			return left, ok, err
		}
		refusal, refused, err := c.refusal()
		if err != nil || refused {
			return refusal, false, err
		}
	}
}

// look returns what the memory has left, and whether it has room for the charges that it must
// admit.
func (c *call) look() (left core.Decision, ok bool, err error) {
	m := c.copies()
	defer m.free()
	m.look()
	own, err := c.takeCopies(m)
	if left = *own; err != nil {
		return left, false, err
	}
	for i, o := range left.Outcomes() {
		// A look does not say whether a value is known: count does.
		charge := &c.charges[i]
		short := charge.Cost > 0 && charge.Cost+m.charges[i].Reserve > o.Remaining && charge.Quota.Algorithm != core.Distinct
		if (short || !o.Fits()) && !m.yields.has(i) { // a barred key refuses a look
			return left, false, nil
		}
	}
	return left, true, nil
}

// refusal takes from the memory what it has no room for: unlike a look, a refusal says when to
// retry. If the memory has got room meanwhile, refusal gives back what it took, and reports that
// nothing was refused.
func (c *call) refusal() (d core.Decision, refused bool, err error) {
	m := c.copies()
	defer m.free()
	own, err := c.takeCopies(m)
	if err == nil && own.Allowed {
		c.undoCopies(m, own)
		return *own, false, nil
	}
	c.refused(own)
	return *own, true, err
}

// refused makes d, a refusal by the memory, the decision of the call.
func (c *call) refused(d *core.Decision) {
	c.local(d)
	if c.doubtful == 0 {
		d.Mode = core.ModeOverflow
	}
}

// errLate means that this process has decided the same keys without the store while the store was
// deciding.
var errLate = fmt.Errorf("%w: the store answered after this process had decided locally", core.ErrUnavailable)

// count counts in memory what the store has admitted, charged as asked. If the
// memory refuses, count gives the units back to the store.
func (c *call) count(asked []core.Charge, d *core.Decision) error {
	m := c.copies()
	defer m.free()
	own, err := c.takeCounted(m, d)
	if err != nil || !own.Allowed { // other requests took the room
		var full set
		for i, o := range own.Outcomes() {
			if !o.Fits() {
				full.add(i)
			}
		}
		c.undo(asked, d, full)
		c.refused(own)
		*d = *own
		return err
	}
	moved := c.moved(asked, own)
	late := c.late()
	if moved || late {
		c.undoCopies(m, own)
		c.undo(asked, d, m.raised)
		if late {
			return errLate
		}
		return errMoved
	}
	if c.doubtful|c.overflow != 0 {
		c.restrict(d, own)
		d.Delay = max(d.Delay, own.Delay)
	}
	d.Tag = own.At
	return nil
}

// late reports whether a key was decided without the store since the store alone was to
// decide it. Call it after the memory has counted: a decision without the store notes that
// before it asks the memory. So either it finds this request counted, or this request finds
// it, or what it owes is not paid, or it was made before this request began.
func (c *call) late() bool {
	s := c.guard
	return (s.doubtful(c.charges, s.now())|s.doubts.decidedSince(c.charges, c.began))&^c.doubtful != 0
}

// undo gives back to the store what d took. If that fails, it still counts there, which is safe.
// Leases are released later.
//
// A log keeps as many times as its limit. If the memory is full, debts that were paid since d may
// have made the store drop one for each unit of d. So these units stay, in place of those. With
// several instances the store may still have room, so they are given back.
func (c *call) undo(asked []core.Charge, d *core.Decision, full set) {
	if full != 0 && c.guard.instances == 1 && c.guard.doubts.detects.Load() {
		asked = slices.Clone(asked)
		for i := range asked {
			if full.has(i) && asked[i].Quota.Algorithm == core.SlidingLog {
				asked[i].Cost = 0
			}
		}
	}
	if c.held != nil {
		asked = c.unhold(asked, d)
	}
	err := core.Undo(c.ctx, c.guard.store, asked, d)
	c.ended(err)
	if err != nil {
		c.mayTake = max(c.mayTake, c.now)
	}
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
