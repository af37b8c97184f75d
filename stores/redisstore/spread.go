package redisstore

import (
	"context"
	"errors"
	"fmt"
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

// A group is the charges of a request that are in one part.
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
			if groups[g].part == p {
				groups[g].charges, groups[g].at = append(groups[g].charges, c), append(groups[g].at, i)
				continue next
			}
		}
		groups = append(groups, group{p, []core.Charge{c}, []int{i}})
	}
	return groups
}

// each calls f for all groups at the same time, the first in this goroutine, and
// returns the worst error.
func each(groups []group, f func(i int, g *group) error) error {
	errs := make([]error, len(groups))
	call := func(i int) {
		defer func() {
			if problem := recover(); problem != nil { // a hook: it would end the program, or keep others from being undone
				errs[i] = panicked(problem)
			}
		}()
		errs[i] = f(i, &groups[i])
	}
	var others sync.WaitGroup
	for i := 1; i < len(groups); i++ {
		others.Go(func() { call(i) })
	}
	call(0)
	others.Wait()
	return worst(errs)
}

// worst returns the first error that is not about the infrastructure, or else the
// first. A client could have caused it, so it must not be answered by admitting. If a
// part did not answer, the error says so too.
func worst(errs []error) (worst error) {
	var last *unansweredError
	for _, err := range errs {
		var u *unansweredError
		if errors.As(err, &u) && (last == nil || u.until.After(last.until)) {
			last = u
		}
		if worst == nil || errors.Is(worst, core.ErrUnavailable) && err != nil && !errors.Is(err, core.ErrUnavailable) {
			worst = err
		}
	}
	if last != nil {
		return &unansweredError{worst, last.until}
	}
	return worst
}

// single returns the part that all charges are in, or nil.
func (s *Store) single(charges []core.Charge) *part {
	p := s.partOf(charges[0].Key)
	for i := 1; i < len(charges); i++ {
		if s.partOf(charges[i].Key) != p {
			return nil
		}
	}
	return p
}

// takeSpread takes in all parts at the same time, and undoes that unless all admit.
// Charges that decide alone stay taken. A part that fails may have taken its charges, as its error says.
func (s *Store) takeSpread(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if p := s.single(charges); p != nil {
		return p.batcher(policy, charges).take(ctx, charges)
	}
	groups := s.split(charges)
	decisions := make([]core.Decision, len(groups))
	err := each(groups, func(i int, g *group) (err error) {
		decisions[i], err = g.batcher(policy, g.charges).take(ctx, g.charges)
		return err
	})
	allowed := err == nil
	for i := range decisions {
		allowed = allowed && decisions[i].Allowed
	}
	if !allowed {
		if ended := s.undo(ctx, policy, groups, decisions, err == nil); err == nil {
			err = ended
		}
	}
	if err != nil {
		return core.Decision{}, err
	}
	return merge(groups, decisions, len(charges), allowed), nil
}

// undo returns what the groups of a refused request have taken. With refresh, it
// replaces their decisions by those without the request. It goes on when ctx ends,
// but does not keep the caller.
func (s *Store) undo(ctx context.Context, policy string, groups []group, decisions []core.Decision, refresh bool) error {
	detached := context.WithoutCancel(ctx)
	strikes := refresh && struck(groups, decisions)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = each(groups, func(i int, g *group) error {
			d := &decisions[i]
			if !d.Allowed { // after an error, d is the zero decision
				return nil
			}
			if err := core.Undo(detached, g.part, policy, g.charges, d); err != nil {
				s.unreturned.Add(1)
				return err
			}
			if refresh && (costs(g.charges) || strikes) {
				// After an error the outcomes are a unit short.
				if now, err := g.peek(detached, policy, strikes); err == nil {
					keepAlone(&now, d)
					*d = now
				}
			}
			return nil
		})
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// costs reports whether an admission has taken anything that a refusal gives back.
func costs(charges []core.Charge) bool {
	for i := range charges {
		if charges[i].Cost > 0 && !charges[i].Alone {
			return true
		}
	}
	return false
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
func (g *group) peek(ctx context.Context, policy string, strikes bool) (core.Decision, error) {
	free := append([]core.Charge(nil), g.charges...)
	for i := range free {
		free[i].Cost = 0
		if strikes && free[i].Quota.Bars() {
			free[i].Cost = 1
		}
	}
	d, err := g.batcher(policy, free).take(ctx, free)
	for i, o := range d.Outcomes() {
		if free[i].Quota.Bars() && o.Remaining == 0 && o.Fits() { // the strike has barred the key
			o.RetryAfter, o.MoreAfter = o.MoreAfter, 0
			d.Outcomes()[i] = o
		}
	}
	return d, err
}

// keepAlone replaces the outcomes of charges that decide alone by those of an
// earlier decision, which was final for them.
func keepAlone(d, earlier *core.Decision) {
	for i := range d.Outcomes() {
		if d.Alone(i) {
			d.Outcomes()[i] = earlier.Outcomes()[i]
			d.SetTimeOf(i, earlier.At)
		}
	}
}

// merge joins the decisions of the groups into that of the request.
func merge(groups []group, decisions []core.Decision, n int, allowed bool) core.Decision {
	d := core.NewDecision(decisions[0].At, n)
	d.Allowed = allowed
	outcomes := d.Outcomes()
	for i := range groups {
		part := &decisions[i]
		for j, o := range part.Outcomes() {
			outcomes[groups[i].at[j]] = o
			d.SetTimeOf(groups[i].at[j], part.TimeOf(j))
			if part.Alone(j) {
				d.SetAlone(groups[i].at[j])
			}
		}
		if allowed {
			d.Delay = max(d.Delay, part.Delay)
		}
	}
	return d
}

// Unreturned returns how often a store with [Options.Spread] failed to return what a
// refused request had taken in one part. Such units count until their window has
// passed, and leases until they expire.
func (s *Store) Unreturned() int64 { return s.unreturned.Load() }
