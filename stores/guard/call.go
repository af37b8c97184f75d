package guard

import "github.com/routelimit/limit/core"

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
	if c.guard.debts.count.Load() > 0 {
		if err := c.payFirst(); err != nil {
			return err
		}
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
	if s.store.active(c.now) {
		c.findOverflow()
	}
}

// A set is a set of charges: bit i is charge i.
type set uint16

func (s set) has(i int) bool { return s>>i&1 != 0 }

func (s *set) add(i int) { *s |= 1 << i }

var _ [16 - core.MaxCharges]struct{} // a set has room for all charges of a call
