package limit

import (
	"context"

	"github.com/routelimit/limit/internal/engine"
)

// The errors of what a decision holds.
var (
	// ErrLeaseLost is wrapped by the error that [Options].Observe receives when a
	// request has lost a lease: see [Decision.Lost].
	ErrLeaseLost = engine.ErrLeaseLost

	// ErrSettled is returned by [Decision.Settle] when there is nothing to settle: the
	// decision is a refusal, was not made by [Policy.Reserve] or [Policy.Wait], or has
	// been settled. Nothing was changed.
	ErrSettled = engine.ErrSettled
)

// Release gives back what the decision holds under rules of [Concurrency], when
// the request is done. Handlers and adapters release what they decided; callers
// of [Policy.Take], and of Decide of an adapter, write
//
//	defer d.Release()
//
// Until then the lease is renewed, at least every third of its Window, for as long as
// the process lives. Release does nothing on a Decision that holds nothing or was
// released, a copy included. It waits up to a second for the store, whatever the
// context of the request. If the store is unavailable, the lease is released when it
// answers again, and ends by itself after its Window. It is safe for concurrent use.
func (d Decision) Release() { d.of.Release() }

// Lost returns a channel that is closed when a lease that the decision holds
// under a rule of [Concurrency] is known to be lost: the request goes on, but no
// longer counts, and another request may have its slot. The channel is nil if the
// decision holds nothing.
//
// A lease is lost when a renewal finds that the store no longer holds it (after a
// Reset, an eviction, or a pause of this process for longer than the Window), or
// when no renewal has succeeded for the shortest Window. An unavailable store
// alone is no loss: this process counts its leases meanwhile. That does not bind
// other [Options].Instances.
//
// A loss is noticed late, by up to a third of the shortest Window and the length
// of a call; a paused process notices it when it resumes. So the channel says when
// to stop, but protects nothing else (it is no fencing token). Release does not
// close it, unless it finds that no renewal has succeeded for the shortest Window.
//
// From [DecisionFrom], the channel covers the leases of all sets on the request. To end
// work that goes by a context:
//
//	ctx, cancel := context.WithCancelCause(r.Context())
//	defer cancel(nil)
//	go func() {
//		select {
//		case <-limit.DecisionFrom(ctx).Lost():
//			cancel(limit.ErrLeaseLost)
//		case <-ctx.Done():
//		}
//	}()
func (d Decision) Lost() <-chan struct{} {
	if d.loss != nil {
		return d.loss.lost
	}
	return d.of.Lost()
}

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
	refused, err := d.of.WaitForSlot(ctx)
	if !refused {
		return err
	}
	waited := d.Waited
	d.describe(d.policy, d.route, d.terms)
	d.Waited = waited
	return &RefusedError{Decision: d}
}

// Settle corrects what [Policy.Reserve] or [Policy.Wait] took to n units of each rule,
// the true cost of the request; 0 cancels the reservation. Other numbers leave strikes
// of a [Ban] and values of [Distinct] as they are. Settle can be called once. A second
// call, also on a copy of the decision, returns [ErrSettled].
//
// If the cost is lower, the rest is refunded, as far as its time has not passed:
// never beyond a full quota, and never into another window. If it is higher,
// Settle takes what the rules have room for, and no more: so reserve the most that
// a request may cost. docs/algorithms.md says what each algorithm refunds.
//
// A negative n is an error and settles nothing. An error that wraps
// [ErrUndecided] means that the store failed: then the reservation may stay taken,
// and cannot be settled again.
func (d Decision) Settle(ctx context.Context, n int64) error {
	n, err := validCost(n)
	if err != nil {
		return &RuleError{Problem: err.Error()}
	}
	return d.of.Settle(ctx, func(rule int, charged int64) int64 {
		if n > 0 && !d.policy.rules[rule].Spent {
			return charged
		}
		return n
	})
}
