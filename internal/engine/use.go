package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// Use notes how much of each rule the request has used so far, and takes more where that is
// above what it has taken: half as much again, or half of what is left, and at least what is
// used, as far as there is room and the rule has debts. If that is not enough for a rule, d
// becomes its refusal. The error wraps [ErrSettled] or [ErrUndecided].
func (d *Decision) Use(ctx context.Context, used func(rule int) (n int64, said bool)) error {
	t := d.taken
	switch {
	case t == nil:
		return errNothing
	case t.ended.Load(): // before the lock, which a settlement holds
		return errEnded
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.Load() {
		return errEnded
	}
	var list []growth
	for i := range t.units {
		u := &t.units[i]
		n, said := used(u.rule)
		u.used, u.said = max(u.used, n), u.said || said
		if u.used > u.total() && !u.short {
			list = append(list, growth{unit: u, units: max(u.used-u.total(), u.total()/2)})
		}
	}
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := t.engine.settling(ctx)
	defer cancel()
	short, err := t.extend(ctx, list)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	d.Decision = d.Decision.Clone()
	for _, g := range short {
		if !g.watches {
			d.Allowed, d.Delay = false, 0
			d.Outcomes()[g.rule] = g.outcome
		}
	}
	return nil
}

// extend takes more, and returns the rules that do not have what the request has used. Near the
// limit it takes half of what is left, so that few calls use up a rule. A rule in debt has no
// room to ask for.
func (t *taken) extend(ctx context.Context, list []growth) (short []growth, err error) {
	more := slices.DeleteFunc(slices.Clone(list), func(g growth) bool { return g.owed > 0 })
	if len(more) > 0 {
		if more, err = t.grow(ctx, more); err != nil {
			return nil, err
		}
		more = lacking(more)
		for i := range more {
			g := &more[i]
			g.units = max(g.units, (g.outcome.Remaining-g.Reserve)/2)
		}
		if err := t.takeMore(ctx, more); err != nil {
			return nil, err
		}
	}
	var owed []debt
	for _, g := range lacking(list) {
		if g.MaxDebt > 0 {
			owed = append(owed, debt{unit: g.unit, units: g.units})
		}
	}
	if err := t.owe(ctx, owed); err != nil {
		return nil, err
	}
	if short = lacking(list); len(short) == 0 {
		return nil, nil
	}
	if short, err = t.grow(ctx, short); err != nil { // which says how long they lack it
		return nil, err
	}
	for _, g := range short {
		g.short = g.watches // it refuses nothing, and is not asked again until it is settled
	}
	return short, nil
}

// lacking returns those of list that have less than what is used, with what they lack.
func lacking(list []growth) (short []growth) {
	for _, g := range list {
		if g.units = g.used - g.total(); g.units > 0 {
			short = append(short, g)
		}
	}
	return short
}

// Unsaid is what Used returns of a rule of which the request has said nothing.
const Unsaid = -1

// Used returns what the request has said that it used of each rule, or [Unsaid], and whether it
// has said anything.
func (d *Decision) Used() (used [core.MaxCharges]int64, any bool) {
	for i := range used {
		used[i] = Unsaid
	}
	if d.taken == nil {
		return used, false
	}
	d.taken.mu.Lock()
	defer d.taken.mu.Unlock()
	for i := range d.taken.units {
		if u := &d.taken.units[i]; u.said {
			used[u.rule], any = u.used, true
		}
	}
	return used, any
}
