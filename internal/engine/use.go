package engine

import (
	"context"
	"fmt"

	"github.com/routelimit/limit/core"
)

// Use notes how much of each rule the request has used so far, and takes more where that is
// above what it has taken: half as much again if there is room, and otherwise what is used, as
// far as there is room and the rule has debts. If that is not enough for a rule, d becomes its
// refusal. The error is [ErrSettled], or wraps [ErrUndecided].
func (d *Decision) Use(ctx context.Context, used func(rule int) int64) error {
	t := d.taken
	if t == nil {
		return ErrSettled
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.Load() {
		return ErrSettled
	}
	var list []growth
	for i := range t.units {
		u := &t.units[i]
		if u.used = max(u.used, used(u.rule)); u.used > u.total() {
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

// extend takes more, and returns the rules that do not have what the request has used.
func (t *taken) extend(ctx context.Context, list []growth) (short []growth, err error) {
	if short, err = t.grow(ctx, list); err != nil {
		return nil, err
	}
	if err := t.takeMore(ctx, lacking(short)); err != nil {
		return nil, err
	}
	var owed []debt
	for _, g := range lacking(short) {
		if g.MaxDebt > 0 {
			owed = append(owed, debt{unit: g.unit, units: g.units})
		}
	}
	if err := t.owe(ctx, owed); err != nil {
		return nil, err
	}
	if short = lacking(short); len(short) == 0 {
		return nil, nil
	}
	return t.grow(ctx, short) // which says how long they lack it
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

// Used returns what the request has said that it used of each rule, and whether it has said
// anything.
func (d *Decision) Used() (used [core.MaxCharges]int64, any bool) {
	if d.taken == nil {
		return used, false
	}
	d.taken.mu.Lock()
	defer d.taken.mu.Unlock()
	for i := range d.taken.units {
		u := &d.taken.units[i]
		used[u.rule] = u.used
		any = any || u.used > 0
	}
	return used, any
}
