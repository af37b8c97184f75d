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

// GiveBack gives back what Unused has listed. Those before an error, which wraps
// [ErrUndecided], were given back.
func (e *Engine) GiveBack(ctx context.Context, list []Share) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	returns := make([]core.Return, 0, len(list))
	for i := range list {
		returns = append(returns, list[i].Return)
	}
	for some := range slices.Chunk(returns, core.MaxCharges) {
		back, err := e.Store.Return(ctx, some)
		if err != nil {
			return fmt.Errorf("%w: give back: %w", ErrUndecided, err)
		}
		for i := range back {
			list[i].Returned = back[i]
			e.Refilled(&some[i].Charge)
		}
		list = list[len(back):]
	}
	return nil
}

// Back makes the outcomes of d those after the shares of its set were given back. The
// outcomes of d are its own afterwards.
func (d *Decision) Back(set int, list []Share) {
	d.Decision = d.Decision.Clone()
	for i := range list {
		if s := &list[i]; s.Set == set && s.Units > 0 {
			d.Outcomes()[s.Rule] = s.Outcome
		}
	}
}
