package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/routelimit/limit/core"
)

// rule returns a rule: sometimes one of another policy, or a variant of the one before.
func (s *schedule) rule(i int, a core.Algorithm) core.Charge {
	c := core.Charge{Policy: s.policy, Rule: fmt.Sprint("r", i), Quota: someQuota(s.T, s.random, a)}
	if s.random.IntN(4) == 0 {
		c.Policy += " too"
	}
	if i > 0 && s.random.IntN(4) == 0 {
		c.Policy, c.Rule, c.Variant = s.rules[i-1].Policy, s.rules[i-1].Rule, fmt.Sprint("v", i)
	}
	return c
}

// spread leaves out of a schedule what giving back does not restore exactly: see
// [Harness].Spreads.
func (s *schedule) spread() {
	s.apart = true
	s.stepsBack = false // taking removes what has left the window
	for i := range s.rules {
		q := &s.rules[i].Quota
		for q.Queues() || q.Bars() || q.Algorithm == core.Distinct || (s.returns || s.changes) && q.Refills() {
			*q = someQuota(s.T, s.random, someAlgorithm(s.random))
		}
		q.Missing = 0 // taking and giving back changes when the bucket is new again
	}
}

func (s *schedule) key() string { return fmt.Sprint("k", s.random.IntN(s.keys)) }

// draw returns charges of all rules, in any order.
func (s *schedule) draw() []core.Charge {
	charges := slices.Clone(s.rules)
	s.random.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
	for i := range charges {
		c := &charges[i]
		c.Key = s.key()
		limit := c.Quota.Capacity()
		if c.Quota.Algorithm == core.Distinct { // 0 is no value
			c.ID = s.random.Uint64N(uint64(limit)+4) * allBits
		}
		switch s.random.IntN(20) {
		case 0, 1:
			c.Cost = 0
		case 2:
			c.Cost = limit
		case 3:
			c.Cost = pick(s.random, []int64{limit + 1, core.MaxCost})
		case 4:
			c.Cost = 1 + limit/2
		case 5:
			c.Cost = 1 + s.random.Int64N(limit)
		case 6, 7:
			c.Cost = max(0, s.room(*c)) // what is left
		default:
			c.Cost = 1
		}
		counts := !c.Quota.Identified() && !c.Quota.Bars()
		if (counts || c.Quota.Leases()) && s.random.IntN(10) == 0 {
			c.Reserve = pick(s.random, []int64{1, min(2, limit), min(4, limit), limit, core.MaxCost})
		}
	}
	return charges
}

// allBits spreads small numbers over all bits of an id.
const allBits = 0x9e3779b97f4a7c15

// several returns asks for one call: charges, and before or behind them others on some of
// the same rules, with the same keys or others.
func (s *schedule) several(charges []core.Charge) [][]core.Charge {
	asks := [][]core.Charge{charges}
	for range 1 + s.random.IntN(2) {
		more := s.draw()
		more = more[:1+s.random.IntN(min(len(more), 2))]
		for i := range more {
			for _, c := range charges {
				if c.SameState(&more[i]) && s.random.IntN(2) == 0 {
					more[i].Key = c.Key
				}
			}
		}
		asks = slices.Insert(asks, s.random.IntN(len(asks)+1), more)
	}
	return asks
}

// owe charges some of the rules for units that were used before, in one ask or two.
func (s *schedule) owe() {
	if s.apart && s.changes {
		return // a state that took and gave back keeps units for a larger limit than its own
	}
	var asks [][]core.Charge
	for range 1 + s.random.IntN(2) {
		charges := s.draw()
		charges = charges[:1+s.random.IntN(len(charges))]
		for i := range charges {
			c := &charges[i]
			c.Debt, c.Reserve = true, 0
			if s.random.IntN(8) == 0 {
				large := []int64{3 * c.Quota.Capacity(), core.MaxCost, core.MaxCost - s.random.Int64N(1<<40)}
				c.Cost = pick(s.random, large)
			}
			drawMaxDebt(s.random, c)
			if (c.Quota.Refills() || c.Quota.Bars()) && (s.Elapse != nil || s.stateOf(*c).Expires() <= s.now) {
				continue // a store may have forgotten what the key took since
			}
			c.Age = pick(s.random, []int64{0, 1, s.random.Int64N(c.Quota.Window), c.Quota.Window - 1, c.Quota.Window, 3 * c.Quota.Window, core.MaxTime})
		}
		asks = append(asks, charges)
	}
	s.takeAll(asks...)
}

// drawMaxDebt bounds a debt where that can be, half of the time.
func drawMaxDebt(random *rand.Rand, c *core.Charge) {
	if c.Quota.Algorithm.Owes() && random.IntN(2) == 0 {
		c.MaxDebt = pick(random, []int64{1, 1 + random.Int64N(3*c.Quota.Capacity()), core.MaxLimit})
	}
}

// advance moves the clock by a step that is likely to find a fault.
func (s *schedule) advance() {
	rule := pick(s.random, s.rules)
	w := rule.Quota.Window
	var step int64
	choice := s.random.IntN(16)
	if s.expires && s.random.IntN(6) == 0 {
		choice = idle
	}
	switch choice {
	case idle:
		step = pick(s.random, []int64{2 * w, 2*w + hour, 20 * w, hour - 1, hour, 2 * hour, 40 * day})
	case 0, 1, 2:
	case 3:
		step = 1
	case 4:
		step = w - 1
	case 5:
		step = w
	case 6:
		step = s.random.Int64N(4 * w)
	case 7:
		step = s.retry
	case 8:
		step = s.retry - 1
	case 9, 10:
		rule.Key = s.key()
		if step = s.comesBack(rule); s.random.IntN(2) == 0 && s.taken > 0 {
			step = pick(s.random, s.last.Outcomes()).MoreAfter
		}
	case 11:
		step = -s.random.Int64N(3 * w)
	case 12:
		step = -s.random.Int64N(1 + w/10)
	case 13:
		if s.random.IntN(4) == 0 {
			step = -hour
		}
	default:
		step = s.random.Int64N(1 + w/5)
	}
	if step < 0 {
		if !s.stepsBack || s.now+step < starts[0]/2 {
			return
		}
		s.settle()
	}
	s.pass(step)
}

// idle is the choice of a time in which nothing happens, far beyond a window.
const idle = -1
