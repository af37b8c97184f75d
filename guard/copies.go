package guard

import (
	"context"
	"sync"

	"github.com/routelimit/limit/core"
)

// copies are the charges of a request as the memory is asked for them: each for
// the share of this instance, unless it yields.
type copies struct {
	store   *Store
	charges []core.Charge // in all
	yields  [core.MaxCharges]bool
	all     [core.MaxCharges]core.Charge
}

var pool = sync.Pool{New: func() any { return new(copies) }}

// copies returns copies of charges, which are to be freed.
func (s *Store) copies(charges []core.Charge) *copies {
	c := pool.Get().(*copies)
	c.store = s
	c.charges = c.all[:copy(c.all[:], charges)]
	for i := range c.charges {
		c.charges[i].Quota = share(charges[i].Quota, s.instances)
	}
	return c
}

func (c *copies) free() {
	clear(c.charges)
	clear(c.yields[:])
	c.store, c.charges = nil, nil
	pool.Put(c)
}

// look makes the copies cost nothing.
func (c *copies) look() {
	for i := range c.charges {
		c.charges[i].Cost = 0
	}
}

// yield makes the copy of a charge one that is counted but never refuses.
func (c *copies) yield(i int, of *core.Charge) {
	c.charges[i].Quota = raised(of.Quota, c.store.instances)
	c.yields[i] = true
}

// take takes the copies. What yields and finds no room, which is more than twice
// what its rule admits, is counted as far as there is.
func (c *copies) take(policy string) (core.Decision, error) {
	for {
		d, err := c.store.own.Take(context.Background(), policy, c.charges)
		if err != nil || d.Allowed {
			return d, err
		}
		again := false
		for i, o := range d.Outcomes() {
			if c.yields[i] && !o.Fits() {
				c.charges[i].Cost = min(c.charges[i].Cost-1, o.Remaining)
				again = true
			}
		}
		if !again {
			return d, nil
		}
	}
}
