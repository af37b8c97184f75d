package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// begin makes p the part of a store whose keys have a prefix.
func (p *part) begin(s *Store, prefix string, most int) {
	p.store, p.prefix, p.most, p.policies = s, prefix, most, make(map[string][]*batcher)
}

// spread divides the keys of every policy into parts.
func (s *Store) spread(parts int) {
	if parts < 0 || parts > lua.MaxParts {
		panic(fmt.Sprintf("redisstore: Spread %d: write how many parts, up to %d, or 0 to keep a policy in one slot", parts, lua.MaxParts))
	}
	s.parts = make([]part, parts)
	for i := range s.parts {
		s.parts[i].begin(s, lua.Part(s.prefix, i, parts), maxPoliciesOfPart)
	}
}

// A group is the charges of a call that are of one part.
type group struct {
	*part
	charges []core.Charge
	at      []int // their places in the call
}

// split divides charges into groups, in the order of their first charges. The
// groups have copies of the charges.
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

// each calls f for every group at once, the first in this goroutine, and returns
// the error that matters most.
func each(groups []group, f func(i int, g *group) error) error {
	errs := make([]error, len(groups))
	call := func(i int) {
		defer func() {
			if problem := recover(); problem != nil { // of a hook: it would end the program, or keep what others took
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

// worst returns the first error that is not about the infrastructure, since a client
// could have caused it and it must not be answered by admitting; else the first.
func worst(errs []error) (worst error) {
	for _, err := range errs {
		switch {
		case err == nil:
		case !errors.Is(err, core.ErrUnavailable):
			return err
		case worst == nil:
			worst = err
		}
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

// takeSpread takes in all parts at once, and gives back unless all admit. Where a
// part fails, whether it has taken is as its error says.
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
		if gone := s.undo(ctx, policy, groups, decisions, err == nil); err == nil {
			err = gone
		}
	}
	if err != nil {
		return core.Decision{}, err
	}
	return merge(groups, decisions, len(charges), allowed), nil
}

// undo gives back what the groups of a refused request have taken, and looks what
// they are like without it if that is to be told. It goes on when ctx ends, but
// does not keep the caller.
func (s *Store) undo(ctx context.Context, policy string, groups []group, decisions []core.Decision, tell bool) error {
	apart := context.WithoutCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = each(groups, func(i int, g *group) error {
			d := &decisions[i]
			if !d.Allowed || !costs(g.charges) { // of an error, the zero decision
				return nil
			}
			if err := g.undo(apart, policy, d); err != nil {
				s.kept.Add(1)
				return err
			}
			if tell {
				// If it cannot be told, the outcomes are a unit short.
				if look, err := g.look(apart, policy); err == nil {
					*d = look
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

func costs(charges []core.Charge) bool {
	for i := range charges {
		if charges[i].Cost > 0 {
			return true
		}
	}
	return false
}

// undo gives back what the charges of g took.
func (g *group) undo(ctx context.Context, policy string, d *core.Decision) error {
	var leases []core.Charge
	var returns []core.Return
	for i, c := range g.charges {
		switch {
		case c.Cost == 0:
		case c.Quota.Algorithm == core.Concurrency:
			leases = append(leases, c)
		default:
			returns = append(returns, d.Return(i, c))
		}
	}
	var errs [2]error
	if leases != nil {
		_, errs[0] = g.leases(ctx, policy, leases, false)
	}
	if returns != nil {
		_, errs[1] = g.giveBack(ctx, policy, returns)
	}
	return worst(errs[:])
}

// look decides on the charges of g without taking.
func (g *group) look(ctx context.Context, policy string) (core.Decision, error) {
	looks := append([]core.Charge(nil), g.charges...)
	for i := range looks {
		looks[i].Cost = 0
	}
	return g.batcher(policy, looks).take(ctx, looks)
}

// merge returns the decision that those of the groups make together.
func merge(groups []group, decisions []core.Decision, n int, allowed bool) core.Decision {
	d := core.NewDecision(decisions[0].At, n)
	d.Allowed = allowed
	outcomes := d.Outcomes()
	for i := range groups {
		part := &decisions[i]
		for j, o := range part.Outcomes() {
			outcomes[groups[i].at[j]] = o
			d.SetTimeOf(groups[i].at[j], part.At)
		}
		if allowed {
			d.Delay = max(d.Delay, part.Delay)
		}
	}
	return d
}

// Unreturned returns how often a store that spreads could not give back what a
// refused request had taken of a part: see [Options.Spread]. The units count until
// their time has passed, and leases until they end.
func (s *Store) Unreturned() int64 { return s.kept.Load() }
