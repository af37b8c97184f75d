package engine

import (
	"context"
	"math"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/waiting"
)

// Patience is how long a request waits whose rules say so. A caller without one waits as
// long as its context.
type Patience struct {
	Began time.Time
	Bound time.Time // of the request, whatever its rules say; the zero Time for none

	until time.Time // as long as the same rules refuse
	rules uint16    // a bit for each rule that until is for
}

// set makes until the time for which rules let a request wait.
func (p *Patience) set(rules uint16, wait time.Duration) {
	p.rules, p.until = rules, p.Began.Add(wait)
	if !p.Bound.IsZero() && p.Bound.Before(p.until) {
		p.until = p.Bound
	}
}

// A waiter is a run that waits. A caller that waits holds nothing: each attempt takes
// from every rule or from none.
type waiter struct {
	place    waiting.Waiter
	ctx      context.Context
	patience *Patience   // nil for a caller that waits as long as ctx
	timer    *time.Timer // of a sleep that has an end
	asked    time.Time   // when it last asked the store
	slept    bool
}

// askAgain is after how long a waiter that is the next one asks the store again, whatever the
// store has said: another process may have reset its key.
const askAgain = time.Second

// defaultWaiters is how many requests may wait for one key unless its rule says more.
const defaultWaiters = 100

// Serve decides a request that waits if it has patience, and a slot in a queue that comes
// after the deadline of ctx is a refusal.
func (r *Run) Serve(ctx, calling context.Context, patience *Patience, d *Decision) error {
	if patience == nil {
		return r.Decide(ctx, calling, d)
	}
	if err := r.Wait(ctx, calling, patience, d); err != nil {
		return err
	}
	if d.Delay > 0 {
		d.refuseLate(ctx)
	}
	return nil
}

// Wait asks the store until the rules admit the request, or it has waited as long as it
// may: d is then a refusal. The error is that of ctx, or wraps [ErrUndecided]. The slot
// of an admitted request in a queue is still to come: see [Decision.WaitForSlot].
func (r *Run) Wait(ctx, calling context.Context, patience *Patience, d *Decision) error {
	r.calling = calling
	r.arrange()
	w := &r.waiter
	w.ctx, w.patience, w.slept, w.asked = ctx, patience, false, time.Time{}
	began := time.Now()
	err := r.wait()
	if err != nil {
		return err
	}
	*d = r.result
	if w.slept {
		r.Waited = max(1, time.Since(began))
	}
	return nil
}

func (r *Run) wait() error {
	w, queues := &r.waiter, &r.plan.engine.Queues
	w.place.Cost, w.place.Class = 0, r.Caller.Class
	for i := range r.asks[0].Charges {
		w.place.Cost = max(w.place.Cost, r.asks[0].Charges[i].Cost)
	}
	queues.Enter(&w.place)
	defer queues.Leave(&w.place, nil) // deferred: a recovered panic of the store must not block a queue
	for {
		if mayAsk, err := r.await(); err != nil || !mayAsk {
			return err
		}
		if err := r.attempt(); err != nil {
			return err
		}
		w.asked = time.Now()
		d, asked := &r.result, &r.asks[0].Decision
		if d.Allowed {
			queues.Leave(&w.place, asked)
			return nil
		}
		certain, due := r.refusedUntil(d)
		if d.RetryAfter() == 0 || !r.mayWait(d, certain, &due) || w.late(certain) {
			queues.Leave(&w.place, asked)
			return nil
		}
		r.name()
		if !queues.Join(&w.place, asked, certain, due) {
			return nil
		}
	}
}

// await returns true when r may ask the store, and false once its result is a refusal.
func (r *Run) await() (mayAsk bool, err error) {
	w, queues := &r.waiter, &r.plan.engine.Queues
	if w.asked.IsZero() {
		w.asked = time.Now() // it asks when others say
	}
	for {
		if err := w.ended(); err != nil {
			return false, err
		}
		if !w.place.Queued() && (w.place.Cost == 0 || queues.Len() == 0) {
			return true, nil
		}
		r.name()
		due, mayAsk, full := queues.Next(&w.place)
		if full {
			return false, r.tooLate(due)
		}
		again := w.asked.Add(askAgain)
		if r.forSlot() {
			again = due // slots are not reset, and their waiters ask as often as is bounded
		}
		if now := time.Now(); mayAsk && (!due.After(now) || !again.After(now)) {
			return true, nil
		}
		if r.queuedLate(due) {
			return false, r.tooLate(due)
		}
		if due.After(again) {
			due = again
		}
		w.sleep(due, mayAsk)
	}
}

// name gives r the queues of its keys. Rules that let no request wait have no queue.
func (r *Run) name() {
	w := &r.waiter
	if w.place.Named() {
		return
	}
	charges := r.asks[0].Charges
	decides := r.plan.number << core.MaxCharges // exemptions and shadows leave rules out
	for _, rule := range r.rules {
		decides |= 1 << rule
	}
	ids := make([]waiting.ID, len(charges))
	var bounds []int
	for i := range charges {
		c := &charges[i]
		ids[i] = waiting.ID{Quota: quotaOf(c), Limit: c.Quota.Limit, Reserve: c.Reserve, Rules: decides, AnyTime: c.Quota.Leases()}
		if w.patience == nil {
			continue
		}
		rule := &r.plan.rules[r.rules[i]]
		if rule.Wait == 0 {
			ids[i].Policy = ""
		}
		bounds = append(bounds, rule.Waiters)
		if rule.Waiters == 0 {
			bounds[i] = defaultWaiters
		}
	}
	w.place.Bounds = bounds
	w.place.Name(ids)
}

func quotaOf(c *core.Charge) waiting.Quota {
	return waiting.Quota{Policy: c.Policy, Rule: c.Rule, Variant: c.Variant, Key: c.Key}
}

// ended returns the error of the context of w, if it ended w.
func (w *waiter) ended() error {
	err := w.ctx.Err()
	if w.patience == nil || err == nil {
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
	if w.patience != nil && !due.Before(w.patience.until) {
		return true
	}
	deadline, ok := w.ctx.Deadline()
	return ok && !due.Before(deadline)
}

// sleep sleeps until w is woken, its context or its patience ends or, if it may ask then,
// its time has come.
func (w *waiter) sleep(due time.Time, mayAsk bool) {
	w.slept = true
	if p := w.patience; p != nil {
		if !mayAsk || due.After(p.until) {
			due = p.until
		}
		mayAsk = true
	}
	var rings <-chan time.Time
	if mayAsk {
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

// refusedUntil returns until when the decision d certainly refuses r, and until when it
// does if no lease is released: leases are, at any time.
func (r *Run) refusedUntil(d *Decision) (certain, due time.Time) {
	now := time.Now()
	if after := d.RetryAfter(); after != core.Never {
		due = now.Add(core.Duration(after))
	} else {
		due = now.Add(math.MaxInt64)
		return due, due
	}
	var longest int64
	for i, o := range d.Outcomes() {
		if d.Refuses(i) && !r.plan.rules[i].Charge.Quota.Leases() {
			longest = max(longest, o.RetryAfter)
		}
	}
	return now.Add(core.Duration(longest)), due
}

// mayWait reports whether each rule that refuses r lets it wait for as long as r is
// certainly refused. It makes due, when r asks again, no later than the end of its
// patience.
func (r *Run) mayWait(d *Decision, certain time.Time, due *time.Time) bool {
	p := r.waiter.patience
	if p == nil {
		return true
	}
	if d.Mode == core.ModeRefused || d.RetryAfter() == core.Never {
		return false
	}
	var rules uint16
	shortest := time.Duration(0)
	for i := range d.Outcomes() {
		if !d.Refuses(i) {
			continue
		}
		wait := r.plan.rules[i].Wait
		if wait == 0 {
			return false
		}
		if rules == 0 || wait < shortest {
			shortest = wait
		}
		rules |= 1 << i
	}
	p.set(rules, shortest)
	last := p.until.Add(-1)
	if due.After(last) {
		*due = last
	}
	return rules != 0 && certain.Before(last)
}

// queuedLate reports whether r, which is in a queue, has waited as long as it may, or
// certainly will have at a time.
func (r *Run) queuedLate(due time.Time) bool {
	w := &r.waiter
	rule := r.rules[w.place.Rule()]
	if p := w.patience; p != nil {
		if p.rules>>rule&1 == 0 { // it has moved to another queue, or was not refused yet
			p.set(1<<rule, r.plan.rules[rule].Wait)
		}
		if w.late(time.Now()) {
			return true
		}
	}
	return !r.forSlot() && w.late(due)
}

// forSlot reports whether r is in the queue of a rule with leases.
func (r *Run) forSlot() bool {
	return r.plan.rules[r.rules[r.waiter.place.Rule()]].Charge.Quota.Leases()
}

// tooLate makes the result the refusal of r, which is in a queue, or before a full one, and cannot
// be admitted before due. The store was not asked about r, so it is asked now what is
// left, with a cost of 0.
func (r *Run) tooLate(due time.Time) error {
	w := &r.waiter
	rule := w.place.Rule()
	r.plan.engine.Queues.Leave(&w.place, nil)
	charges := r.asks[0].Charges
	var costs [core.MaxCharges]int64
	for i := range charges {
		costs[i], charges[i].Cost = charges[i].Cost, 0
	}
	held := r.held
	r.held = nil // or a repeated request would extend the hold of the first one
	err := r.attempt()
	if r.held = held; err != nil {
		return err
	}
	d := &r.result
	for i := range charges {
		charges[i].Cost = costs[i]
		o := &d.Outcomes()[r.rules[i]]
		if costs[i] > 0 {
			o.Need(costs[i] + charges[i].Reserve)
		}
		if i == rule {
			o.NotBefore((time.Until(due) + time.Microsecond - 1).Microseconds())
		}
	}
	d.Allowed, d.Delay = false, 0
	d.lease, d.taken = nil, nil // the look took nothing
	return nil
}
