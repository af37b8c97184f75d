package limit

import (
	"context"
	"time"

	"github.com/routelimit/limit/core"
)

// statusGone is what logs show of a request whose client went away before its
// turn; nobody reads the answer. It is nginx's "client closed request".
const statusGone = 499

// Wait waits for the turn of an admitted request: until Delay has passed since
// the decision was made. Without a Delay it returns nil at once.
//
// It returns the error of ctx if that ends before, and a [*RefusedError] if the
// request is refused, or at once if its turn would come after the deadline of
// ctx. The request may not go on with either. Then it gives back what the
// request took, as far as that can be: a turn only as long as it is the last of
// the line, and otherwise it passes unused. What is held is to be Released.
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
	timer := time.NewTimer(time.Until(d.turn))
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

// late returns the refusal that d is for a caller with a deadline before the
// turn, after it has given back what the rules took, as far as that can be:
// others may stand behind the place in the queue already.
func (d Decision) late(ctx context.Context) (Decision, bool) {
	if !d.Allowed || d.Delay <= 0 {
		return d, false
	}
	deadline, ok := ctx.Deadline()
	if !ok || !deadline.Before(d.turn) {
		return d, false
	}
	patience := max(0, time.Until(deadline)).Microseconds()
	given := d.taken.giveBack()
	d.Release()
	refused := core.NewDecision(d.core.At, len(d.core.Outcomes()))
	refused.Mode = d.core.Mode
	for i, o := range d.core.Outcomes() {
		rule := &d.route.charges[i]
		o.Remaining = min(o.Remaining+given[i], d.policy.most[i])
		switch {
		case rule.Quota.Algorithm == Concurrency:
			o = d.givenBack(i, o)
		case rule.Quota.Algorithm == Queue:
			// By then the queue is short enough for one as patient.
			o.ResetAfter = max(0, o.ResetAfter-muldiv(given[i], rule.Quota.Window, rule.Quota.Limit))
			if o.ResetAfter > patience {
				o.RetryAfter, o.MoreAfter = o.ResetAfter-patience, 0
			}
		case o.Remaining == 0 && o.MoreAfter > 0:
			// This request has taken what the next one needs.
			o.RetryAfter, o.MoreAfter = o.MoreAfter, 0
		}
		refused.Outcomes()[i] = o
	}
	return newDecision(d.policy, d.route, refused), true
}
