package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/routelimit/limit/core"
)

// A Run is one request on a plan while it is decided. Take it from [Plan.Begin], fill in
// the exported fields, and give it back with [Run.End].
type Run struct {
	Charges []core.Charge // of all rules, in their order: set Key and Cost, and ID for values
	Caller  Caller

	// What the decision took, once it is made.
	Waited  time.Duration // until the rules admitted the request, or before it was refused
	Latency time.Duration // of the last call of the store, if it was measured
	Ended   int           // holds of others that it has given back
	Unheld  bool          // whether the store could not hold what it took

	plan    *Plan
	asks    []core.Ask    // the first decides the request, the others watch
	some    []core.Charge // of asks[0], if those are not all charges
	rules   []uint8       // for each charge of asks[0], its rule
	watches []uint8       // for each other ask, its rule
	agreed  Caller        // whose terms Charges have
	asked   bool          // whether what watches has been asked

	// What is given back: see Hold.
	returns ruled[core.Return]
	given   []core.Charge // what was given back, or may have been, as debts
	later   *later        // what gives back the rest, or nil
	owed    []core.Charge // that rest
	amended bool          // whether some was given back

	held    *core.Hold // how what it takes is held, or nil
	unnamed bool       // whether no other request can have that hold
	result  Decision
	calling context.Context // of the calls of the store
	began   time.Time       // the last call that takes leases
	waiter  waiter
}

// Begin returns a run for a caller on the usual terms.
func (p *Plan) Begin() *Run {
	r, ok := p.runs.Get().(*Run)
	if !ok {
		r = &Run{plan: p, Charges: make([]core.Charge, len(p.rules)), rules: make([]uint8, len(p.rules)), asks: make([]core.Ask, 1)}
		for i := range p.rules {
			r.Charges[i] = p.rules[i].Charge
			r.rules[i] = uint8(i)
		}
		r.asks[0].Charges = r.Charges
		r.Caller.Terms, r.agreed.Terms = p.usual, p.usual
	}
	return r
}

// End gives r back, without the strings of the request. After a panic of the program's
// functions, leave it to the garbage collector instead.
func (r *Run) End() {
	r.reset()
	r.plan.runs.Put(r)
}

// reset makes r what Begin returns.
func (r *Run) reset() {
	for i := range r.Charges {
		r.Charges[i].Key = ""
	}
	if r.result.plan != nil {
		r.result = Decision{}
	}
	if len(r.returns.list) > 0 || r.gave() {
		clear(r.returns.list)
		clear(r.given)
		r.returns.list, r.returns.rules, r.given = r.returns.list[:0], r.returns.rules[:0], r.given[:0]
		r.later, r.owed = nil, nil
	}
	if r.Caller.Terms != r.plan.usual {
		r.Caller.Terms = r.plan.usual
	}
	r.Caller.Class, r.Caller.Exempt = 0, 0
	r.Waited, r.Latency, r.Ended, r.Unheld = 0, 0, 0, false
	r.asked, r.amended, r.calling, r.waiter.ctx, r.held = false, false, nil, nil, nil
	if r.waiter.place.Named() { // other goroutines may still have it
		r.waiter = waiter{}
	}
}

// Decide asks the store once. The call ends with one context; a slot in a queue that
// comes after the deadline of the other is a refusal. D must be the zero Decision, or Reset.
// After an error, which wraps [ErrUndecided], it is not changed.
func (r *Run) Decide(ctx, calling context.Context, d *Decision) error {
	r.calling = calling
	r.arrange()
	if r.plan.plain {
		return undecided(r.ask(d))
	}
	if err := r.attempt(); err != nil {
		return err
	}
	*d = r.result
	if d.Delay > 0 {
		d.refuseLate(ctx)
	}
	return nil
}

// Look reports what Decide would decide on a request of cost 1, and takes nothing.
func (r *Run) Look(calling context.Context, d *Decision) error {
	for i := range r.Charges {
		r.Charges[i].Cost = 0
	}
	r.calling = calling
	r.arrange()
	err := r.attempt()
	*d = r.result
	for i := range d.Outcomes() {
		if !d.Outcomes()[i].Need(1 + d.Caller.Reserve(i)) {
			d.Allowed = d.Allowed && (d.Watches(i) || d.Caller.Exempts(i))
		}
	}
	return err
}

// arrange makes the asks of the charges.
func (r *Run) arrange() {
	for _, step := range r.plan.prepare {
		step(r)
	}
}

// attempt asks the store, and holds what an admission took.
func (r *Run) attempt() error {
	if r.result.plan != nil {
		r.result = Decision{} // of the last try
	}
	for _, step := range r.plan.steps {
		if err := step(r); err != nil {
			r.result = Decision{}
			return undecided(err)
		}
	}
	return nil
}

// undecided wraps an error of the store, but for [ErrSettled].
func undecided(err error) error {
	if err == nil || errors.Is(err, ErrSettled) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUndecided, err)
}

// agree gives the charges the terms of the caller.
func (r *Run) agree() {
	c := &r.Caller
	if r.agreed.Terms == c.Terms && r.agreed.Class == c.Class {
		return
	}
	r.agreed = *c
	for i := range r.Charges {
		charge := &r.Charges[i]
		charge.Quota, charge.Reserve = c.Terms.Quotas[i], c.Reserve(i)
		charge.Variant = variant(r.plan.rules[i].Charge.Variant, c.Terms.Variants[i])
	}
}

// divide leaves out the rules that exempt the caller, and has those that watch decide
// beside the others.
func (r *Run) divide() {
	r.some, r.rules, r.watches, r.asks = r.some[:0], r.rules[:0], r.watches[:0], r.asks[:1]
	for i := range r.Charges {
		switch c := &r.Charges[i]; {
		case r.Caller.Exempts(i):
		case r.plan.rules[i].watches(c):
			r.watches = append(r.watches, uint8(i))
			r.asks = append(r.asks, core.Ask{Charges: r.Charges[i : i+1 : i+1]})
		default:
			r.rules = append(r.rules, uint8(i))
			r.some = append(r.some, *c)
		}
	}
	r.asks[0] = core.Ask{Charges: r.some}
}

// Spare exempts the caller from the rules whose quotas a decision has charged for the same
// request. A rule whose terms know more of the caller by now must have room for that charge.
// Otherwise it refuses the request, by asking for it once more. It is for runs of
// [Plan.Exempting].
func (r *Run) Spare(d *Decision) {
	if !d.Allowed || d.plan == nil {
		return
	}
	for i := range r.Charges {
		c := &r.Charges[i]
		mine := r.plan.Charge(i, c.Key, r.Caller.Terms)
		for j := range d.plan.rules {
			other := d.plan.Charge(j, d.Key(j), d.Caller.Terms)
			switch {
			case !mine.SameState(&other) || mine.Key != other.Key || d.Caller.Exempts(j):
			case mine.Quota == other.Quota && r.Caller.Reserve(i) <= d.Caller.Reserve(j), mine.Quota.Bars(), r.covers(i, d, j):
				r.Caller.Exempt |= 1 << i
			case mine.Quota.Algorithm == core.Distinct:
				c.ID = rand.Uint64() | 1 // the value has a place already, and would fit
			}
		}
	}
}

// covers reports whether what a decision has left of a quota shows that a rule has room for what
// the decision took. The order of such decisions says which requests have it.
func (r *Run) covers(rule int, d *Decision, of int) bool {
	used := d.Caller.Terms.Capacities[of] - d.Outcomes()[of].Remaining
	return used+r.Caller.Reserve(rule) <= r.Caller.Terms.Capacities[rule]
}

// pending returns what the store is asked: what watches only the first time, since a
// request counts there once, however often it asks.
func (r *Run) pending() []core.Ask {
	asks := r.asks
	if r.asked {
		asks = asks[:1]
	}
	r.asked = true
	if len(asks[0].Charges) == 0 {
		asks = asks[1:]
	}
	return asks
}

// ask asks the store, and sets d.
func (r *Run) ask(d *Decision) (err error) {
	e, asks := r.plan.engine, r.pending()
	r.Latency = 0
	switch {
	case len(asks) == 0: // all rules exempt the caller, or watch and were asked: see collect
	case e.timed():
		start := time.Since(epoch)
		err = r.takeAll(asks)
		r.Latency = time.Since(epoch) - start
	default:
		err = r.takeAll(asks)
	}
	if err != nil {
		return err
	}
	if d.Decision = r.asks[0].Decision; d.plan != r.plan || d.Caller != r.Caller {
		d.plan, d.Caller = r.plan, r.Caller
	}
	d.keys.keep(r.Charges)
	return nil
}

// takeAll has the store decide, and hold what the run is to hold.
func (r *Run) takeAll(asks []core.Ask) (err error) {
	store := r.plan.engine.Store
	switch {
	case r.held != nil:
		return r.hold(asks)
	case r.plan.take != nil:
		err = r.plan.take(r.calling, &asks[0])
	default:
		err = store.Take(r.calling, asks)
	}
	if err == nil && r.plan.holds.Load() && r.freed() {
		err = store.Take(r.calling, r.asks[:1])
	}
	return err
}

// collect makes d the outcome of all rules, in their order: of those that decided, of
// those that watched, and of those that exempt the caller.
func (r *Run) collect() error {
	d, first := &r.result, &r.asks[0].Decision
	if len(r.some) == 0 { // nothing refuses
		first.Allowed, first.At, first.Mode = true, time.Now().UnixMicro(), core.ModeExempt
		if len(r.asks) > 1 {
			first.At, first.Mode = r.asks[1].Decision.At, r.asks[1].Decision.Mode
		}
	}
	d.Decision = core.NewDecision(first.At, len(r.Charges))
	d.Allowed, d.Mode, d.Delay = first.Allowed, first.Mode, first.Delay
	outcomes := d.Outcomes()
	for i, rule := range r.rules {
		outcomes[rule] = first.Outcomes()[i]
	}
	d.Watched = 0
	for i, rule := range r.watches {
		outcomes[rule] = r.asks[1+i].Decision.Outcomes()[0]
		d.Watched |= 1 << rule
	}
	for i := range outcomes {
		if r.Caller.Exempts(i) {
			outcomes[i] = core.Outcome{Remaining: r.Caller.Terms.Capacities[i]}
		}
	}
	return nil
}

// watches reports whether a rule decides beside the others for a charge.
func (r *Rule) watches(c *core.Charge) bool {
	return r.Watches && (r.Enforced == 0 || share(c.Policy, c.Rule, c.Key) >= r.Enforced)
}

// share returns a number from 0 to 99 for a key, the same in all processes: it must
// never change. It is FNV-1a, mixed so that all bits count.
func share(policy, rule, key string) int {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{policy, rule, key} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211 // in no text, so that "ab", "c" differs from "a", "bc"
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int((h ^ h>>33) % 100)
}

// LookAt reports what a rule would decide on a request of cost 1, and takes nothing. The
// outcomes of the other rules are zero.
func (r *Run) LookAt(ctx context.Context, rule int, d *Decision) error {
	r.agree()
	c := r.Charges[rule]
	c.Cost, c.ID = 0, 1
	asks := []core.Ask{{Charges: []core.Charge{c}}}
	if err := r.plan.engine.Store.Take(ctx, asks); err != nil {
		return undecided(err)
	}
	of := &asks[0].Decision
	d.Decision = core.NewDecision(of.At, len(r.Charges))
	d.Allowed, d.Mode = of.Allowed, of.Mode
	d.Outcomes()[rule] = of.Outcomes()[0]
	d.plan, d.Caller = r.plan, r.Caller
	d.keys.keep(r.Charges)
	d.Outcomes()[rule].Need(1 + d.Caller.Reserve(rule))
	return nil
}

// Account returns what the key of a rule owes and holds. The run must have its charges.
func (r *Run) Account(ctx context.Context, rule int) (core.Account, error) {
	r.agree()
	a, err := core.AccountOf(ctx, r.plan.engine.Store, r.Charges[rule])
	return a, undecided(err)
}
