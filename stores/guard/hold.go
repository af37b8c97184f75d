package guard

import (
	"cmp"
	"context"
	"slices"

	"github.com/routelimit/limit/core"
)

// Holds implements [core.Holder].
func (s *Store) Holds(charges []core.Charge) bool {
	h := core.HolderOf(s.store)
	return h != nil && h.Holds(charges)
}

// Hold implements [core.Holder]. The ask is decided as by Take, and not held, while the store is
// unavailable, while it may not know what was admitted without it, and if a key is on an overflow
// quota. A call without an answer may have held it: that ends by itself, since nobody extends it.
func (s *Store) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	if err := cmp.Or(h.Validate(ask), ctx.Err()); err != nil {
		return err
	}
	asks := []core.Ask{*ask}
	defer func() { ask.Decision = asks[0].Decision }()
	c := call{attempt: attempt{guard: s, ctx: ctx, now: s.now()}, of: asks, charges: ask.Charges}
	c.classify()
	if s.debts.count.Load() > 0 || s.unavailable() || c.doubtful|c.overflow != 0 || !c.enter() {
		h.Found, h.Over = core.HoldRefused, nil
		return s.Take(ctx, asks)
	}
	defer c.leave()
	err := core.HolderOf(s.store).Hold(ctx, &asks[0], h)
	c.ended(err)
	switch d := &asks[0].Decision; {
	case err != nil:
		h.Found, h.Over = core.HoldRefused, nil
		c.unanswered(err)
	case h.Found == core.HoldSettled || !d.Allowed: // nothing new was taken
		s.answered(c.now)
	case h.Found == core.HoldLives:
		s.answered(c.now)
		c.charges = core.Repeated(ask.Charges)
		if !slices.ContainsFunc(c.charges, func(c core.Charge) bool { return c.Cost > 0 }) {
			break
		}
		if err = c.counted(d); err != nil { // it is decided again, as one that is not held
			c.charges, h.Found = ask.Charges, core.HoldRefused
		}
	default:
		s.answered(c.now)
		c.held = h
		err = c.counted(d)
	}
	return c.finish(err)
}

// unhold ends the hold of what the store has taken, where the hold would give that back once more
// when it ends, and returns the charges that are left to undo. If that fails, the hold ends by
// itself.
func (c *call) unhold(asked []core.Charge, d *core.Decision) []core.Charge {
	asked = slices.Clone(asked)
	var list []core.Settlement
	for i := range asked {
		if of := c.charges[i]; of.Cost > 0 && of.Quota.Holds() {
			list = append(list, core.Settlement{Return: d.Return(i, of), Hold: c.held.ID, Used: of.Cost - asked[i].Cost, Forget: true})
			asked[i].Cost = 0
		}
	}
	if len(list) > 0 {
		_, err := core.HolderOf(c.guard.store).Settle(c.ctx, list)
		c.ended(err)
	}
	return asked
}

// Settle implements [core.Holder]. If the store is unavailable, it returns an error. What this
// process counts of a held charge for outages stays what was reserved.
func (s *Store) Settle(ctx context.Context, list []core.Settlement) (done []core.Settled, err error) {
	for i, now := 0, s.now(); i < len(list); i++ { // before the store counts less than the memory
		s.doubts.excused[s.doubts.place(&list[i].Charge)].advance(now)
	}
	err = s.try(ctx, func() (err error) {
		done, err = core.HolderOf(s.store).Settle(ctx, list)
		return err
	})
	return done, err
}

// Extend implements [core.Holder]. If the store is unavailable, it returns an error.
func (s *Store) Extend(ctx context.Context, list []core.Extension) (lived []bool, err error) {
	err = s.try(ctx, func() (err error) {
		lived, err = core.HolderOf(s.store).Extend(ctx, list)
		return err
	})
	return lived, err
}

// Account returns what the store knows that a key owes and holds, or an error: see
// [core.AccountOf].
func (s *Store) Account(ctx context.Context, c core.Charge) (account core.Account, err error) {
	err = s.try(ctx, func() (err error) {
		account, err = core.AccountOf(ctx, s.store, c)
		return err
	})
	return account, err
}
