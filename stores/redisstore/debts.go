package redisstore

import (
	"context"

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
	if err := each(groups, func(i int, g *group) error { return g.part.owe(ctx, g.charges, &decisions[i]) }); err != nil {
		return err
	}
	all, n := merge(groups, decisions, len(charges), true), 0
	for i := range asks {
		d := core.NewDecision(all.At, len(asks[i].Charges))
		d.Allowed = true
		for j := range d.Outcomes() {
			d.Set(j, &all, n)
			n++
		}
		asks[i].Decision = d
	}
	return nil
}

// owe takes charges that are debts, on keys of one slot. The charges are copies.
func (p *part) owe(ctx context.Context, charges []core.Charge, d *core.Decision) error {
	s := p.store
	now := s.now()
	s.hasher.replace(charges)
	call := lua.NewDebts(p.prefix, now, s.grace, charges)
	c := &invocation{script: call.Script, keys: call.Keys, args: call.Args, timed: now == ""}
	reply, err := s.numbered(ctx, c, []core.Ask{{Charges: charges}})
	if err == nil {
		*d, err = call.Decode(reply, charges)
	}
	return err
}
