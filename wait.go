package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/waiting"
)

// Wait takes a request like [Policy.Take], but waits until the rules admit it. A
// caller that waits holds nothing: each try takes from every rule or from none,
// and a wait that ends without an admission has taken nothing. Behind a [Queue]
// it waits for the slot too; a slot that it took and does not wait for stays
// taken, as in [Decision.Wait].
//
// Waits on one Limiter for one key are served by [Request].Class, as docs/plans.md says,
// and within a class in the order in which they began, so that small costs do not
// overtake a large one. Callers with different limits do not wait for each other, and
// neither do those of different rules: before and after [Limiter.Change], for example.
// When room appears, several waiters ask the store at once; if another caller takes the
// room first, a later waiter may be admitted before an earlier one. Take, handlers whose
// rules do not wait, and other processes do not queue, and may come first.
//
// Units that this process gives back (by Settle, Release or Reset) wake the first
// waiter at once. It notices a slot of [Concurrency] that another process releases
// within about 100 ms. Otherwise it asks again at the time that the store said. A
// decision of Wait can be settled, like one of [Policy.Reserve].
//
// A decision without an error is admitted. The error is that of ctx if it ends
// first. It is a [*RefusedError] at once when the rules will certainly not admit
// the request before the deadline of ctx; its RetryAfter does not count the
// callers in line. Rules of [Concurrency] are never certain, since leases are released
// at any time. Otherwise the error says what is wrong with the request (a
// cost that can never fit, for example), or wraps [ErrUndecided]. A ctx that ends
// while the store decides does not end that: Wait then returns the decision, since
// an admission has been paid for.
//
// Wait starts no goroutine, and the Limiter remembers only the callers that wait.
func (p *Policy) Wait(ctx context.Context, r Request) (Decision, error) {
	return p.current.Load().waitRequest(ctx, &r)
}

func (p *version) waitRequest(ctx context.Context, r *Request) (Decision, error) {
	if r.UpTo {
		return Decision{}, &RuleError{Problem: "Wait takes the full Cost: leave out UpTo, or call limit.Policy.Take"}
	}
	if p.bars {
		return Decision{}, &RuleError{Problem: "Wait asks again after a refusal, and each is a strike of the ban: call limit.Policy.Take"}
	}
	if err := p.check(r, true); err != nil {
		return Decision{}, err
	}
	s := p.named.scratch()
	defer p.named.put(s)
	if err := p.chargeRequest(s, r); err != nil {
		return Decision{}, err
	}
	w := &waiter{ctx: ctx, route: p.named, scratch: s, detached: detached{ctx}, reserve: true}
	w.calling = &w.detached
	for i, most := range s.caller.terms.capacities {
		n := w.charges[i].Cost
		most -= w.charges[i].Reserve
		if n > most && !w.charges[i].Alone && !p.set.rules[i].noQuota() {
			return Decision{}, &RuleError{Rule: p.set.rules[i].String(), Problem: fmt.Sprintf(
				"cost %d: the rule never has room for more than %d: write less", n, most)}
		}
	}
	taken := min(max(1, r.Cost), core.MaxCost)
	var d Decision
	if err := p.waitForSlot(w, &d); err != nil {
		if errors.Is(err, ErrUndecided) {
			p.observed(&d, err)
		}
		return Decision{}, err
	}
	p.observed(&d, nil)
	if !d.Allowed {
		return Decision{}, &RefusedError{Decision: d}
	}
	if len(r.Costs) == 0 {
		d.Taken = taken
	}
	return d, nil
}

// waitForSlot waits until the rules admit w, and then for the slot of a [Queue].
func (p *version) waitForSlot(w *waiter, d *Decision) error {
	began := time.Now()
	err := p.wait(w, d)
	if w.slept && err == nil {
		d.Waited = max(1, time.Since(began))
	}
	if err != nil || !d.Allowed {
		return err
	}
	switch err := d.Wait(w.ctx).(type) {
	case nil:
		return nil
	case *RefusedError:
		*d = err.Decision
		return nil
	default:
		d.Release()
		*d = Decision{}
		return err
	}
}

// A waiter is one call of Wait, or one HTTP request that may wait, with what the
// store is called with.
type waiter struct {
	place waiting.Waiter
	ctx   context.Context
	route *route
	*scratch
	calling context.Context
	reserve bool        // whether the decision can be settled
	timer   *time.Timer // of a sleep that has an end
	slept   bool
	request *patience // of an HTTP request
	watched firstOutcomes

	detached detached // room for calling, without an allocation of its own
}

// detached has the values of a context, but does not end with it.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

// wait asks the store until the rules admit w, or w has waited as long as it may: d is
// then a refusal. The error is that of a context, or wraps [ErrUndecided].
func (p *version) wait(w *waiter, d *Decision) error {
	for i := range w.charges {
		if !w.charges[i].Alone {
			w.place.Cost = max(w.place.Cost, w.charges[i].Cost)
		}
	}
	w.place.Class = w.caller.class
	queues := &p.limiter.queues
	queues.Enter(&w.place)
	defer queues.Leave(&w.place, nil) // deferred: a recovered panic of the store must not block a queue
	for {
		if mayAsk, err := p.await(w, d); err != nil || !mayAsk {
			return err
		}
		*d = Decision{}
		if err := p.take(w.calling, d, w.route, w.scratch, w.reserve); err != nil {
			return err
		}
		w.watched.keep(d, w.charges, w.reserve || p.settles)
		if d.Allowed {
			queues.Leave(&w.place, &d.core)
			return nil
		}
		certain, due := w.refusedUntil(d)
		if d.RetryAfter == 0 || !w.mayWait(p, d, certain, &due) || w.late(certain) {
			queues.Leave(&w.place, &d.core)
			return nil
		}
		p.name(w)
		if !queues.Join(&w.place, &d.core, certain, due) {
			return nil
		}
	}
}

// await returns true when w may ask the store, and false with its refusal.
func (p *version) await(w *waiter, d *Decision) (mayAsk bool, err error) {
	queues := &p.limiter.queues
	for {
		if err := w.ended(); err != nil {
			return false, err
		}
		if !w.place.Queued() && (w.place.Cost == 0 || queues.Len() == 0) {
			return true, nil
		}
		p.name(w)
		due, mayAsk, full := queues.Next(&w.place)
		if full {
			return false, p.tooLate(w, d, due)
		}
		if mayAsk && !due.After(time.Now()) {
			return true, nil
		}
		if w.queuedLate(p, due) {
			return false, p.tooLate(w, d, due)
		}
		w.sleep(due, mayAsk)
	}
}

// name gives w the queues of its keys.
func (p *version) name(w *waiter) {
	if w.place.Named() {
		return
	}
	ids := make([]waiting.ID, len(p.keyOf))
	for i := range ids {
		c := &w.charges[i]
		ids[i] = waiting.ID{Policy: w.route.stored, Rule: c.Rule, Key: c.Key, Limit: c.Quota.Limit, Reserve: c.Reserve, Rules: p.number, AnyTime: c.Quota.Leases()}
		if w.charges[i].Alone {
			ids[i].Policy = "" // it refuses nothing, so there is no queue for it
		}
	}
	if w.request != nil {
		w.place.Bounds = p.bounds(ids)
	}
	w.place.Name(ids)
}

// ended returns the error of the context of w, if it ended w.
func (w *waiter) ended() error {
	err := w.ctx.Err()
	if w.request == nil || err == nil {
		return err
	}
	_, known := w.ctx.Deadline()
	if !w.place.Queued() || known && err == context.DeadlineExceeded {
		return nil // it is decided like any other request, or refused
	}
	return err
}

// late reports whether w will have waited too long at a time.
func (w *waiter) late(due time.Time) bool {
	if w.request != nil && !due.Before(w.request.until) {
		return true
	}
	deadline, ok := w.ctx.Deadline()
	return ok && !due.Before(deadline)
}

// sleep sleeps until w is woken, its context ends or, if timed, its time has
// come.
func (w *waiter) sleep(due time.Time, timed bool) {
	w.slept = true
	if w.request != nil {
		due, timed = w.request.sleeps(due, timed), true
	}
	var rings <-chan time.Time
	if timed {
		if w.timer == nil {
			w.timer = time.NewTimer(time.Until(due))
		} else {
			w.timer.Reset(time.Until(due))
		}
		defer w.timer.Stop()
		rings = w.timer.C
	}
	select {
	case <-rings:
	case <-w.place.Wake():
	case <-w.ctx.Done():
	}
}

// tooLate makes d the refusal of w, which is in a queue, or before a full one, and
// cannot be admitted before due. The store was not asked about w, so it is asked now
// what is left, with a cost of 0.
func (p *version) tooLate(w *waiter, d *Decision, due time.Time) error {
	rule := w.place.Rule()
	p.limiter.queues.Leave(&w.place, nil)
	*d = Decision{}
	look := &scratch{charges: slices.Clone(w.charges), caller: w.caller}
	for i := range look.charges {
		if !look.charges[i].Alone {
			look.charges[i].Cost = 0
		}
	}
	if err := p.take(w.calling, d, w.route, look, false); err != nil {
		return err
	}
	w.watched.keep(d, w.charges, w.reserve || p.settles)
	for i := range d.core.Outcomes() {
		o := &d.core.Outcomes()[i]
		if d.core.Alone(i) {
			continue
		}
		if o.Remaining < w.charges[i].Cost+w.charges[i].Reserve && w.charges[i].Cost > 0 {
			o.RetryAfter, o.MoreAfter = max(1, o.MoreAfter), 0
		}
		if i == rule {
			until := time.Until(due) + time.Microsecond - 1
			o.RetryAfter, o.MoreAfter = max(1, o.RetryAfter, until.Microseconds()), 0
		}
	}
	d.core.Allowed = false
	latency := d.Latency
	*d = newDecision(p, w.route, w.caller, d.keys, d.core)
	d.Latency = latency
	return nil
}

// refilled has a caller that waits for a key ask the store at once.
func (l *Limiter) refilled(policy, rule, key string) {
	l.queues.Refilled(policy, rule, key)
}
