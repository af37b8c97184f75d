package limit

import (
	"context"
	"time"

	"github.com/routelimit/limit/core"
)

// Wait waits for the slot of an admitted request: until Delay has passed since
// the decision. Without a Delay it returns nil at once.
//
// It returns the error of ctx if that ends first, and a [*RefusedError] if the
// request is refused, or at once if its slot would come after the deadline of
// ctx. With either error the request must not go on; Wait then gives back what
// the request took. A later request then gets the slot, even before requests that came
// earlier: no slot moves. Leases stay held until [Decision.Release].
func (d Decision) Wait(ctx context.Context) error {
	if !d.Allowed {
		return &RefusedError{Decision: d}
	}
	if d.Delay <= 0 {
		return nil
	}
	if late, ok := d.late(ctx); ok {
		return &RefusedError{Decision: late}
	}
	timer := time.NewTimer(time.Until(d.slot))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	err := ctx.Err() // both may have come at once
	if err != nil {
		d.taken.giveBack()
	}
	return err
}

// late returns the refusal that d is for a caller whose deadline is before the
// slot, after giving back what the rules took. Later requests may have slots
// behind this one already, which then stay where they are.
func (d Decision) late(ctx context.Context) (Decision, bool) {
	if !d.Allowed || d.Delay <= 0 {
		return d, false
	}
	deadline, ok := ctx.Deadline()
	if !ok || !deadline.Before(d.slot) {
		return d, false
	}
	patience := max(0, time.Until(deadline)).Microseconds()
	given := d.taken.giveBack()
	d.Release()
	refused := core.NewDecision(d.core.At, len(d.core.Outcomes()))
	refused.Mode = d.core.Mode
	for i, o := range d.core.Outcomes() {
		quota := &d.caller.terms.quotas[i]
		if d.core.Alone(i) || d.caller.exempts(i) {
			if d.core.Alone(i) {
				refused.SetAlone(i)
			}
			refused.Outcomes()[i] = o
			continue
		}
		o.Remaining = min(o.Remaining+given[i], d.caller.terms.capacities[i])
		switch {
		case quota.Leases():
			o = d.afterRelease(i, o)
		case quota.Queues():
			// By then the queue is short enough for a request as patient as this one.
			shorter, _ := core.MulDiv(given[i], quota.Window, quota.Limit)
			o.ResetAfter = max(0, o.ResetAfter-shorter)
			if o.ResetAfter > patience {
				o.RetryAfter, o.MoreAfter = o.ResetAfter-patience, 0
			}
		case o.Remaining <= d.caller.reserve(i) && o.MoreAfter > 0:
			// This request has taken what the next one needs.
			o.RetryAfter, o.MoreAfter = o.MoreAfter, 0
		}
		refused.Outcomes()[i] = o
	}
	late := newDecision(d.policy, d.route, d.caller, d.keys, refused)
	late.Waited, late.Latency = d.Waited, d.Latency
	return late, true
}
