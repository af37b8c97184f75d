package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// setUp makes p the part of a store for keys with a prefix.
func (p *part) setUp(s *Store, prefix string, most int) {
	p.store, p.prefix, p.most, p.policies = s, prefix, most, make(map[string][]*batcher)
}

// spread divides the keys of every policy into parts.
func (s *Store) spread(parts int) {
	if parts < 0 || parts > lua.MaxParts {
		panic(fmt.Sprintf("redisstore: Spread %d: write the number of parts, up to %d, or 0 to keep a policy in one slot", parts, lua.MaxParts))
	}
	s.parts = make([]part, parts)
	for i := range s.parts {
		s.parts[i].setUp(s, lua.Part(s.prefix, i, parts), maxPoliciesOfPart)
	}
}

// A group is the charges of an ask that are in one slot.
type group struct {
	*part
	charges []core.Charge // copies
	at      []int         // their indexes in the request
}

// split divides charges into groups, in the order of their first charges.
func (s *Store) split(charges []core.Charge) []group {
	var groups []group
next:
	for i, c := range charges {
		p := s.partOf(c.Key)
		for g := range groups {
			if groups[g].part == p && s.sameSlot(&groups[g].charges[0], &c) {
				groups[g].charges, groups[g].at = append(groups[g].charges, c), append(groups[g].at, i)
				continue next
			}
		}
		groups = append(groups, group{p, []core.Charge{c}, []int{i}})
	}
	return groups
}

// each calls f for all groups at the same time, the first in this goroutine, and returns the worst
// error.
func each(groups []group, f func(i int, g *group) error) error {
	errs := make([]error, len(groups))
	call := func(i int) { // a panic would keep others from being undone
		errs[i] = guarded(func() error { return f(i, &groups[i]) })
	}
	var others sync.WaitGroup
	for i := 1; i < len(groups); i++ {
		others.Go(func() { call(i) })
	}
	call(0)
	others.Wait()
	return worst(errs)
}

// worst returns the first error that is not about the infrastructure, or else the first. A client
// could have caused it, so it must not be answered by admitting. If a part did not answer, the
// error says so too.
func worst(errs []error) (worst error) {
	var last *core.Unanswered
	for _, err := range errs {
		var u *core.Unanswered
		if errors.As(err, &u) && (last == nil || u.Until.After(last.Until)) {
			last = u
		}
		if worst == nil || errors.Is(worst, core.ErrUnavailable) && err != nil && !errors.Is(err, core.ErrUnavailable) {
			worst = err
		}
	}
	if last != nil {
		return &core.Unanswered{Err: worst, Until: last.Until}
	}
	return worst
}

// sameSlot reports whether charges of one part share a slot of a Cluster.
func (s *Store) sameSlot(a, b *core.Charge) bool { return !s.slots || a.Policy == b.Policy }

// single returns the part of the only slot that all charges are in, or nil.
func (s *Store) single(asks []core.Ask) *part {
	if s.parts == nil && !s.slots {
		return &s.part
	}
	first := &asks[0].Charges[0]
	p := s.partOf(first.Key)
	for i := range asks {
		for j := range asks[i].Charges {
			if c := &asks[i].Charges[j]; s.partOf(c.Key) != p || !s.sameSlot(first, c) {
				return nil
			}
		}
	}
	return p
}

// takeSpread decides asks that are not all in one slot, one after the other. After an
// error, it undoes those that were admitted.
func (s *Store) takeSpread(ctx context.Context, asks []core.Ask) error {
	for i := range asks {
		if err := s.takeAsk(ctx, &asks[i]); err != nil {
			for j := range asks[:i] {
				d := &asks[j].Decision
				if d.Allowed && core.Undo(context.WithoutCancel(ctx), s, asks[j].Charges, d) != nil {
					s.unreturned.Add(1)
				}
			}
			return err
		}
	}
	return nil
}

// takeAsk takes in all slots at the same time, and undoes that unless all admit. A slot
// that fails may have taken its charges, as its error says.
func (s *Store) takeAsk(ctx context.Context, ask *core.Ask) error {
	groups := s.split(ask.Charges)
	if len(groups) == 1 {
		var err error
		ask.Decision, err = groups[0].take(ctx, ask.Charges)
		return err
	}
	decisions := make([]core.Decision, len(groups))
	err := each(groups, func(i int, g *group) (err error) {
		decisions[i], err = g.take(ctx, g.charges)
		return err
	})
	allowed := err == nil
	for i := range decisions {
		allowed = allowed && decisions[i].Allowed
	}
	if !allowed {
		if ended := s.undo(ctx, groups, decisions, err == nil); err == nil {
			err = ended
		}
	}
	if err == nil {
		ask.Decision = merge(groups, decisions, len(ask.Charges), allowed)
	}
	return err
}

// take decides charges of one slot.
func (p *part) take(ctx context.Context, charges []core.Charge) (core.Decision, error) {
	asks := []core.Ask{{Charges: charges}}
	err := p.batcher(asks).take(ctx, asks)
	return asks[0].Decision, err
}

// undo returns what the groups of a refused request have taken. With refresh, it replaces their
// decisions by those without the request. It goes on when ctx ends, but does not keep the caller.
func (s *Store) undo(ctx context.Context, groups []group, decisions []core.Decision, refresh bool) error {
	unending := context.WithoutCancel(ctx)
	strikes := refresh && struck(groups, decisions)
	undo := func(i int, g *group) error { //nolint:unparam // each asks for one
		d := &decisions[i]
		if !d.Allowed { // after an error, d is the zero decision
			return nil
		}
		if err := core.Undo(unending, g.part, g.charges, d); err != nil {
			s.unreturned.Add(1)
			return nil //nolint:nilerr // what could not be returned stays taken
		}
		taken := slices.ContainsFunc(g.charges, func(c core.Charge) bool { return c.Cost > 0 })
		if refresh && (taken || strikes) {
			// After an error the outcomes are a unit short.
			if now, err := g.peek(unending, strikes); err == nil {
				*d = now
			}
		}
		return nil
	}
	return detached(ctx, func() error {
		_ = each(groups, undo) // a panic of a hook: what was taken still counts
		return nil
	})
}

// struck reports whether a request that was refused counts as a strike in the parts
// that have admitted it: if no ban has refused it. The part that refused has counted it.
func struck(groups []group, decisions []core.Decision) bool {
	bans := false
	for i := range groups {
		for j, o := range decisions[i].Outcomes() {
			if groups[i].charges[j].Quota.Bars() {
				if !decisions[i].Allowed && !o.Fits() {
					return false
				}
				bans = true
			}
		}
	}
	return bans
}

// peek decides on the charges of g at a cost of 0, but for a strike of each ban.
func (g *group) peek(ctx context.Context, strikes bool) (core.Decision, error) {
	free := slices.Clone(g.charges)
	for i := range free {
		free[i].Cost = 0
		if strikes && free[i].Quota.Bars() {
			free[i].Cost = 1
		}
	}
	d, err := g.take(ctx, free)
	for i := range d.Outcomes() {
		if free[i].Quota.Bars() {
			d.Outcomes()[i].Need(1) // the strike may have barred the key
		}
	}
	return d, err
}

// merge joins the decisions of the groups into that of the request.
func merge(groups []group, decisions []core.Decision, n int, allowed bool) core.Decision {
	d := core.NewDecision(decisions[0].At, n)
	d.Allowed = allowed
	for i := range groups {
		part := &decisions[i]
		for j, to := range groups[i].at {
			d.Set(to, part, j)
		}
		if allowed {
			d.Delay = max(d.Delay, part.Delay)
		}
	}
	return d
}

// Unreturned returns how often a store with [Options.Spread] failed to return what a refused
// request had taken in one part. Such units count until their window has passed, and leases until
// they expire.
func (s *Store) Unreturned() int64 { return s.unreturned.Load() }
