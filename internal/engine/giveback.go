package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// A Share is what one rule took for an admitted request and gives back, since something
// behind the rules has refused the request.
type Share struct {
	Set  int // that the rule is of, as the caller of Unused counts them
	Rule int
	core.Return
	core.Returned // what came of it, after GiveBack
}

// Unused appends to list what a decision of r took and may give back: everything but
// leases, which are released, and what rules with Keeps took. Ask once, and before r ends.
// Nothing of it can be settled afterwards.
func (r *Run) Unused(d *Decision, set int, list []Share) []Share {
	t := d.taken
	switch {
	case t == nil:
		t = r.newTaken()
	case !t.begin():
		return list // the handler has settled it
	}
	kept := t.units[:0]
	for _, u := range t.units {
		switch {
		case r.plan.rules[u.rule].Keeps:
			kept = append(kept, u)
		case u.Cost > 0:
			list = append(list, Share{Set: set, Rule: u.rule, Return: u.Return})
		}
	}
	t.units = kept
	t.ended.Store(false) // the answer settles the rest
	return list
}

// GiveBack gives back what Unused has listed, and returns how many shares the store has
// answered: all of them, or those before an error, which wraps [ErrUndecided].
func (e *Engine) GiveBack(ctx context.Context, list []Share) (done int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	returns := make([]core.Return, 0, len(list))
	for i := range list {
		returns = append(returns, list[i].Return)
	}
	for some := range slices.Chunk(returns, core.MaxCharges) {
		back, err := e.Store.Return(ctx, some)
		if err != nil {
			return done, fmt.Errorf("%w: give back: %w", ErrUndecided, err)
		}
		for i := range back {
			list[done].Returned = back[i]
			e.Refilled(&some[i].Charge)
			done++
		}
	}
	return done, nil
}

// Back makes the outcomes of d those after the shares of its set were given back, and
// reports whether any units were. The outcomes of d are its own afterwards. The run
// remembers the shares for TakeAgain.
func (r *Run) Back(d *Decision, set int, list []Share) (given bool) {
	d.Decision = d.Decision.Clone()
	r.given = r.given[:0]
	for i := range list {
		if s := &list[i]; s.Set == set && s.Units > 0 {
			d.Outcomes()[s.Rule] = s.Outcome
			c := s.Charge
			c.Cost, c.Reserve, c.Debt = s.Units, 0, true
			r.given = append(r.given, core.Ask{Charges: []core.Charge{c}})
		}
	}
	return len(r.given) > 0
}

// TakeAgain takes what was given back of r again, whatever is left by now, for a request that
// is served after all.
func (r *Run) TakeAgain(ctx context.Context) error {
	if len(r.given) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := r.plan.engine.Store.Take(ctx, r.given); err != nil {
		return fmt.Errorf("%w: take again: %w", ErrUndecided, err)
	}
	return nil
}
