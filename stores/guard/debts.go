package guard

import (
	"context"

	"github.com/routelimit/limit/core"
)

// owe has the store take asks that are debts, and counts them in memory. While the store
// is unavailable they count in memory only, as what this process admits without it.
func (s *Store) owe(ctx context.Context, asks []core.Ask) error {
	a := attempt{guard: s, ctx: ctx}
	err := errOpen
	if a.enter() {
		defer a.leave()
		err = s.store.Take(ctx, asks)
		a.ended(err)
	}
	switch {
	case err == nil:
		s.outage.answered(a.now)
	case !unavailable(ctx, err):
		return err
	}
	for i := range asks {
		c := call{attempt: a, of: asks[i : i+1], charges: asks[i].Charges}
		if problem := c.countDebts(err); problem != nil {
			return problem
		}
	}
	return nil
}

// countDebts counts debts in memory. If the store has failed, that is the decision.
func (c *call) countDebts(failed error) error {
	if failed != nil {
		d, err := c.takeShare()
		c.of[0].Decision = d
		c.guard.outage.add(c.now, d.Mode, failed)
		return err
	}
	m := c.shares()
	defer m.free()
	for i := range m.charges {
		if m.charges[i].Quota.Bars() {
			m.yields.add(i)
		}
	}
	_, err := c.takeCopies(m)
	return err
}
