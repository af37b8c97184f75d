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

// Settle implements [core.Holder]. If the store is unavailable, it returns an error, and counts as if
// the store were settled: it is asked again, with Tag 0. Then only the memory has released the leases.
func (s *Store) Settle(ctx context.Context, list []core.Settlement) (done []core.Settled, err error) {
	for i, now := 0, s.now(); i < len(list); i++ { // before the store counts less than the memory
		s.doubts.excused[s.doubts.place(&list[i].Charge)].advance(now)
	}
	leases, elsewhere := core.Leased(list), s.overflows(s.now()) || s.now() < s.unreleased.until.time()
	if len(leases) > 0 { // before the store admits others in their place
		_ = s.own.Release(context.Background(), leases)
	}
	err = s.try(ctx, func() (err error) {
		done, err = core.HolderOf(s.store).Settle(ctx, list)
		return err
	})
	if err == nil && len(leases) > 0 && elsewhere { // in an overflow quota, or a Take without an answer may still take them
		_ = s.Release(ctx, leases)
	}
	for i := range list {
		of, cost := &list[i], list[i].Used
		if err == nil {
			cost -= done[i].Forgiven
		}
		if of.At != 0 && of.Tag != 0 && !of.Ends && (err != nil || done[i].Found == core.HoldLives || done[i].Found == core.HoldEnded) {
			s.recount(of.Return, cost)
		}
	}
	return done, err
}

// recount has the memory count what a request cost that this process has held.
func (s *Store) recount(r core.Return, cost int64) {
	switch more := cost - r.Cost; {
	case more < 0:
		r.Cost = -more
		_, _ = s.own.Return(context.Background(), s.copied([]core.Return{r}))
	case more > 0:
		r.Cost, r.Debt = more, r.MaxDebt > 0
		c := call{attempt: attempt{guard: s, now: s.now()}, charges: []core.Charge{r.Charge}}
		m := c.copies()
		if r.Debt { // a window carries what is above the limit, and not above a share
			m.charges[0].Quota, m.charges[0].MaxDebt = r.Quota, r.MaxDebt
		}
		_, _ = c.takeCopies(m)
		m.free()
	}
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
