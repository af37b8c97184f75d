package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// A Hold has the runs of a rule set, one after the other. Until a request that the set has admitted
// is served, something behind the set may claim its run, to give back what it took. Claims are
// safe for concurrent use: a run is given back once, and taken again once.
type Hold struct {
	run   *Run // nil if it was claimed; the next request uses it again
	held  bool // whether it may be claimed
	state atomic.Int32
}

// The states of a Hold: what it took stays taken; it was given back, or may have been; the run was
// claimed, or nothing may claim it. A step from one to another keeps nothing else from the run.
const standing, returned, claimed int32 = 0, 1, 2

// Begin returns the run of the next request.
func (h *Hold) Begin(p *Plan) *Run {
	if h.run == nil || h.run.plan != p {
		if h.run != nil {
			h.run.End()
		}
		h.run = p.Begin()
	}
	return h.run
}

// Set has the run claimed from now on. Nothing else uses h yet.
func (h *Hold) Set() { h.held = true }

// Close lets nothing claim the run any more: what it took stays taken, or given back.
func (h *Hold) Close() { h.state.Store(claimed) }

// End ends the request. Nothing else uses h any more.
func (h *Hold) End() {
	if h.run != nil {
		h.run.reset()
	}
	if h.held = false; h.state.Load() != standing {
		h.state.Store(standing)
	}
}

// Keep ends the run of h, unless what it took was given back and may be taken again. It reports
// whether there was one.
func (h *Hold) Keep() bool {
	r := h.claim(standing)
	if r != nil {
		r.End()
	}
	return r != nil
}

// claim returns the run of h, once, if h is in a state.
func (h *Hold) claim(state int32) *Run {
	if !h.held || !h.state.CompareAndSwap(state, claimed) {
		return nil
	}
	r := h.run
	h.run = nil
	return r
}

// A Refund is what one rule set gives back.
type Refund struct {
	Err error // why the store did not answer all of it; it wraps [ErrUndecided]

	hold *Hold
	run  *Run            // whose returned are given back
	back []core.Returned // of the first of them

	held  *taken // under a core.Hold, or nil
	units []unit // of it, which are settled at 0
	done  settled
}

// Unused appends to list what the run of h took for a decision and may give back: everything
// but leases, which are released, and what rules with Keeps took. Ask once. Nothing of it
// can be settled afterwards.
func (h *Hold) Unused(d *Decision, list []Refund) []Refund {
	r := h.claim(standing)
	if r == nil {
		return list
	}
	refund := Refund{hold: h, run: r}
	switch t := d.taken; {
	case t == nil:
		for u := range r.took {
			r.unused(&u)
		}
	case t.ended.CompareAndSwap(false, true): // otherwise the handler has settled it
		t.mu.Lock() // the handler may say what it uses
		defer t.mu.Unlock()
		if t.lease != nil {
			refund.held = t
		}
		t.units = slices.DeleteFunc(t.units, func(u unit) bool {
			switch {
			case r.plan.rules[u.rule].Keeps:
				return false
			case t.lease != nil:
				refund.units = append(refund.units, u)
			default:
				r.unused(&u)
			}
			return true
		})
		t.rest() // which the answer or the handler settles
	}
	if len(r.returns.list)+len(refund.units) == 0 {
		r.End()
		return list
	}
	return append(list, refund)
}

// unused adds what u took to the returns, if it may be given back.
func (r *Run) unused(u *unit) {
	if r.plan.rules[u.rule].Keeps {
		return
	}
	u.less(u.total(), &r.returns)
}

// GiveBack gives back what Unused has listed, in one call of the store if it can.
func (e *Engine) GiveBack(ctx context.Context, list []Refund) {
	ctx, cancel := e.settling(ctx)
	defer cancel()
	returns := list[0].run.returns.list
	if len(list) > 1 {
		returns = slices.Clone(returns)
		for i := range list[1:] {
			returns = append(returns, list[1+i].run.returns.list...)
		}
	}
	for i := range list {
		if refund := &list[i]; refund.held != nil {
			refund.done, refund.Err = refund.held.settle(ctx, nil, refund.units, func(int, int64) int64 { return 0 })
		}
	}
	var back []core.Returned
	var err error
	for some := range slices.Chunk(returns, core.MaxCharges) {
		var answers []core.Returned
		if answers, err = e.Store.Return(ctx, some); err != nil {
			err = fmt.Errorf("%w: give back: %w", ErrUndecided, err)
			break
		}
		back = append(back, answers...)
		for i := range some {
			e.Refilled(&some[i].Charge)
		}
	}
	for i := range list {
		refund := &list[i]
		n := min(len(refund.run.returns.list), len(back))
		refund.back, back = back[:n], back[n:]
		if n < len(refund.run.returns.list) {
			refund.Err = err
		}
	}
}

// Amend makes the outcomes of d, the decision that took them, those after units were given
// back, and reports whether any were. They are its own afterwards. The run is then held
// again, to be taken again. So is that of units that a call without an answer may have given
// back: if the request is served after all, they may count twice.
func (b *Refund) Amend(d *Decision) (given bool) {
	d.Decision = d.Decision.Clone()
	for i := range b.units {
		u, to := &b.units[i], &b.run.given
		n := b.done.given[u.rule]
		if n > 0 {
			d.Outcomes()[u.rule].Back(n, d.Caller.Terms.Capacities[u.rule])
			given = true
		}
		if b.Err != nil {
			if n = u.total(); u.held && b.done.later != nil {
				b.run.later, to = b.done.later, &b.run.owed
			}
		}
		again(to, u.Charge, n)
	}
	for i, r := range b.run.returns.list {
		n := r.Cost
		if i < len(b.back) {
			if n = b.back[i].Units; n > 0 {
				d.Outcomes()[b.run.returns.rules[i]] = b.back[i].Outcome
				given = true
			}
		}
		again(&b.run.given, r.Charge, n)
	}
	if b.run.amended = given; !b.run.gave() {
		b.run.End()
	} else {
		b.hold.run = b.run
		b.hold.state.Store(returned)
	}
	return given
}

// gave reports whether what r took was given back, or may have been.
func (r *Run) gave() bool { return len(r.given)+len(r.owed) > 0 }

// again notes units to take again.
func again(list *[]core.Charge, c core.Charge, units int64) {
	if units == 0 {
		return
	}
	c.Cost, c.Reserve, c.Debt, c.MaxDebt = units, 0, true, 0
	if i := slices.IndexFunc(*list, func(g core.Charge) bool { return g.SameState(&c) }); i >= 0 {
		(*list)[i].Cost += units // what the rule took later
	} else {
		*list = append(*list, c)
	}
}

// TakeAgain takes what was given back of the run of h again, for a request that is served after
// all: as a debt, whatever is left by now. It reports whether Amend has said that there was any.
func (h *Hold) TakeAgain(ctx context.Context) (given bool, err error) {
	r := h.claim(returned)
	if r == nil {
		return false, nil
	}
	defer r.End()
	ctx, cancel := r.plan.engine.settling(ctx)
	defer cancel()
	list := r.given
	if r.later != nil && r.later.owe(r.owed) {
		list = append(list, r.owed...)
	}
	if len(list) == 0 {
		return r.amended, nil
	}
	if _, err := core.Take(ctx, r.plan.engine.Store, list); err != nil {
		return r.amended, fmt.Errorf("%w: take again: %w", ErrUndecided, err)
	}
	return r.amended, nil
}
