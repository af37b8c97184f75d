package engine

import (
	"context"
	"time"

	"github.com/routelimit/limit/core"
)

// A Decision is what a run has come to: the outcome of each rule, in the order of the
// rules, and what the request holds. Copies share what it holds.
type Decision struct {
	core.Decision
	Caller  Caller
	Watched uint16 // a bit for each rule that decided beside the others

	plan  *Plan
	keys  keys
	lease *lease // what is held until Release; nil if nothing is
	taken *taken // what may be given back; nil if nothing may
}

// Reset makes d zero, but for what the next decision of the plan overwrites.
func (d *Decision) Reset() {
	for i := range min(len(d.Outcomes()), len(d.keys.few)) {
		d.keys.few[i] = "" // clear would be a call
	}
	d.Allowed, d.Watched, d.keys.many, d.lease, d.taken = false, 0, nil, nil, nil
}

// Watches reports whether a rule decided beside the others.
func (d *Decision) Watches(rule int) bool { return d.Watched>>rule&1 != 0 }

// Refuses reports whether a rule refuses the request.
func (d *Decision) Refuses(rule int) bool { return !d.Outcomes()[rule].Fits() && !d.Watches(rule) }

// RetryAfter returns how long until the request would be admitted if no other came, in
// microseconds, as [core.Decision.RetryAfter] does for rules that all decide.
func (d *Decision) RetryAfter() (longest int64) {
	for i, o := range d.Outcomes() {
		switch {
		case d.Watches(i):
		case o.RetryAfter == core.Never:
			return core.Never
		default:
			longest = max(longest, o.RetryAfter)
		}
	}
	return longest
}

// Remaining returns what a rule has left for the caller.
func (d *Decision) Remaining(rule int) int64 {
	return max(0, d.Outcomes()[rule].Remaining-d.Caller.Reserve(rule))
}

// Key returns the key of a rule.
func (d *Decision) Key(rule int) string {
	if d.keys.many != nil {
		return d.keys.many[rule]
	}
	return d.keys.few[rule]
}

// keys are those of the charges of a decision. The charges themselves serve other
// requests meanwhile. Few keys need no allocation, as the outcomes of package core.
type keys struct {
	few  [4]string
	many *[core.MaxCharges]string
}

func (k *keys) keep(charges []core.Charge) {
	to := k.few[:]
	if len(charges) > len(k.few) {
		k.many = new([core.MaxCharges]string)
		to = k.many[:]
	}
	for i := range charges {
		to[i] = charges[i].Key
	}
}

// WaitForSlot waits until the slot of an admitted request comes. It reports whether d has
// become a refusal, since the slot would come after the deadline of ctx, or returns the
// error of ctx if that ends first. Either way, what the request took is given back.
func (d *Decision) WaitForSlot(ctx context.Context) (refused bool, err error) {
	if d.Delay <= 0 {
		return false, nil
	}
	if d.refuseLate(ctx) {
		return true, nil
	}
	timer := time.NewTimer(time.Until(d.taken.slot))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if err = ctx.Err(); err != nil { // both may have come at once
		d.taken.giveBack()
	}
	return false, err
}

// refuseLate makes d a refusal if its slot comes after the deadline of ctx, and reports
// whether it did. Later requests may have slots behind this one already, which then stay
// where they are.
func (d *Decision) refuseLate(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	if !ok || !d.Allowed || !deadline.Before(d.taken.slot) {
		return false
	}
	patience := max(0, time.Until(deadline)).Microseconds()
	given := d.taken.giveBack()
	d.Release()
	d.Allowed, d.Delay = false, 0
	for i := range d.Outcomes() {
		o, quota := &d.Outcomes()[i], &d.Caller.Terms.Quotas[i]
		if d.Watches(i) || d.Caller.Exempts(i) {
			continue
		}
		capacity := d.Caller.Terms.Capacities[i]
		o.Remaining = min(o.Remaining+given[i], capacity)
		switch {
		case quota.Leases():
			o.Back(d.lease.units(d.plan.rules[i].Charge.Rule), capacity)
		case quota.Queues():
			// By then the queue is short enough for a request as patient as this one.
			shorter, _ := core.MulDiv(given[i], quota.Window, quota.Limit)
			o.ResetAfter = max(0, o.ResetAfter-shorter)
			if o.ResetAfter > patience {
				o.RetryAfter, o.MoreAfter = o.ResetAfter-patience, 0
			}
		case o.MoreAfter > 0:
			o.Need(1 + d.Caller.Reserve(i)) // this request may have taken what the next one needs
		}
	}
	d.lease, d.taken = nil, nil
	return true
}
