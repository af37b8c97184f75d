package redisstore

import (
	"context"
	"errors"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// owe takes asks that are debts, by one call for each slot, at the same time.
func (s *Store) owe(ctx context.Context, asks []core.Ask) error {
	var charges []core.Charge
	for i := range asks {
		charges = append(charges, asks[i].Charges...)
	}
	groups := s.split(charges)
	decisions := make([]core.Decision, len(groups))
	forgiven := make([]int64, len(charges))
	if err := each(groups, func(i int, g *group) error {
		units, err := g.part.owe(ctx, g.charges, &decisions[i])
		for j, n := range units {
			forgiven[g.at[j]] = n
		}
		return err
	}); err != nil {
		return err
	}
	all, n := merge(groups, decisions, len(charges), true), 0
	for i := range asks {
		d := core.NewDecision(all.At, len(asks[i].Charges))
		d.Allowed = true
		for j := range d.Outcomes() {
			d.Set(j, &all, n)
			d.Forgiven += forgiven[n]
			n++
		}
		asks[i].Decision = d
	}
	return nil
}

// owe takes charges that are debts, on keys of one slot, and returns how much of each was
// forgiven. The charges are copies.
func (p *part) owe(ctx context.Context, charges []core.Charge, d *core.Decision) (forgiven []int64, err error) {
	p.store.hasher.replace(charges)
	forgiven, err = p.oweAll(ctx, charges, d, false)
	if !errors.Is(err, lua.ErrValue) {
		return forgiven, err
	}
	if !mixed(charges) {
		return p.oweAll(ctx, charges, d, true)
	}
	all := core.NewDecision(0, len(charges))
	all.Allowed = true
	for i := range charges {
		var one core.Decision
		more, err := p.oweAll(ctx, charges[i:i+1], &one, true)
		if err != nil {
			return nil, err
		}
		all.At, forgiven = one.At, append(forgiven, more...)
		all.Set(i, &one, 0)
	}
	*d = all
	return forgiven, nil
}

// mixed reports whether charges on one key have different algorithms.
func mixed(charges []core.Charge) bool {
	for i := range charges {
		for j := range charges[:i] {
			c, d := &charges[i], &charges[j]
			if c.Key == d.Key && c.SameState(d) && !c.Quota.Algorithm.Alike(d.Quota.Algorithm) {
				return true
			}
		}
	}
	return false
}

// oweAll takes debts by one call; tallied of keys that several algorithms charge.
func (p *part) oweAll(ctx context.Context, charges []core.Charge, d *core.Decision, tallied bool) (forgiven []int64, err error) {
	s := p.store
	call := lua.NewDebts(p.prefix, s.now(), s.grace, charges)
	if tallied {
		call.Tallied(charges)
	}
	reply, err := s.numbered(ctx, &invocation{script: call.Script, keys: call.Keys, args: call.Args}, []core.Ask{{Charges: charges}})
	if err == nil {
		*d, forgiven, err = call.Decode(reply, charges)
	}
	return forgiven, err
}
