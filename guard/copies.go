package guard

import (
	"context"
	"sync"

	"github.com/routelimit/limit/core"
)

// copies are the charges of a request as the memory is asked for them: each for
// the share of this instance. Those that yield are counted, but do not refuse.
type copies struct {
	store   *Store
	charges []core.Charge // in all
	of      []core.Charge // what they are copies of
	yields  [core.MaxCharges]bool
	raised  [core.MaxCharges]bool // yields, and had to
	all     [core.MaxCharges]core.Charge
}

var pool = sync.Pool{New: func() any { return new(copies) }}

// copies returns copies of charges, which are to be freed.
func (s *Store) copies(charges []core.Charge) *copies {
	c := pool.Get().(*copies)
	c.store, c.of = s, charges
	c.charges = c.all[:copy(c.all[:], charges)]
	for i := range c.charges {
		c.charges[i].Quota = share(charges[i].Quota, s.instances)
	}
	return c
}

func (c *copies) free() {
	clear(c.charges)
	clear(c.yields[:])
	clear(c.raised[:])
	c.store, c.charges, c.of = nil, nil, nil
	pool.Put(c)
}

// widen makes the copies as large as the rule, but those that are in doubt.
func (c *copies) widen(doubts func(i int) bool) {
	for i := range c.charges {
		if doubts == nil || !doubts(i) {
			c.charges[i].Quota = whole(c.of[i].Quota, c.store.instances)
		}
	}
}

// look makes the copies cost nothing.
func (c *copies) look() {
	for i := range c.charges {
		c.charges[i].Cost = 0
	}
}

// take takes the copies. When only those are in the way that yield, there is
// made room for them: for twice what the rule admits, and beyond that they are
// counted as far as there is room.
func (c *copies) take(policy string) (core.Decision, error) {
	for {
		d, err := c.store.own.Take(context.Background(), policy, c.charges)
		if err != nil || d.Allowed || c.refused(&d) {
			return d, err
		}
		for i, o := range d.Outcomes() {
			switch {
			case o.Fits():
			case c.raised[i]:
				c.charges[i].Cost = min(c.charges[i].Cost-1, o.Remaining)
			default:
				c.charges[i].Quota = wider(c.of[i].Quota, c.store.instances, 2)
				c.raised[i] = true
			}
		}
	}
}

// refused reports whether a copy that does not yield has no room.
func (c *copies) refused(d *core.Decision) bool {
	for i, o := range d.Outcomes() {
		if !o.Fits() && !c.yields[i] {
			return true
		}
	}
	return false
}
