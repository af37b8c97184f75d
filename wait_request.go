package limit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/waiting"
)

// patience is how long an HTTP request waits: see [Refusal].Wait.
type patience struct {
	began time.Time
	bound time.Time // by the context and the server's WriteTimeout; zero if there is none
	until time.Time // as long as the same rules refuse
	rules uint16    // a bit for each rule that until is for
}

// decideWaiting decides an HTTP request of a policy with a rule that lets it wait.
func (p *version) decideWaiting(d *Decision, r *http.Request, route *route, s *scratch) error {
	ctx := r.Context()
	began := time.Now()
	w := s.waiter
	if w == nil {
		w = &waiter{request: new(patience)}
	}
	*w.request = patience{began: began, bound: waitBound(ctx, began)}
	w.ctx, w.route, w.scratch, w.calling = ctx, route, s, p.limiter.detached(ctx)
	err := p.wait(w, d)
	slept := w.slept
	s.waiter = nil
	if !w.place.Named() { // it was in no queue, and the next request can use it
		*w = waiter{request: w.request}
		s.waiter = w
	}
	if err != nil {
		return err
	}
	if slept {
		d.Waited = max(1, time.Since(began))
	}
	if d.Delay > 0 {
		*d, _ = d.late(ctx)
	}
	return nil
}

type arrivedKey struct{}

// waited returns r with a context in which later policies find when it arrived, since
// the time of the server counts from there.
func (d *Decision) waited(r *http.Request) *http.Request {
	ctx := r.Context()
	if _, known := ctx.Value(arrivedKey{}).(time.Time); known {
		return r
	}
	return r.WithContext(context.WithValue(ctx, arrivedKey{}, time.Now().Add(-d.Waited)))
}

// waitBound returns the time at which a context ends, or nine tenths of the server's
// WriteTimeout have passed. The server counts from the header of the request, a little
// earlier.
func waitBound(ctx context.Context, began time.Time) time.Time {
	bound, _ := ctx.Deadline()
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 {
		return bound
	}
	if arrived, ok := ctx.Value(arrivedKey{}).(time.Time); ok {
		began = arrived
	}
	if end := began.Add(server.WriteTimeout - server.WriteTimeout/10); bound.IsZero() || end.Before(bound) {
		return end
	}
	return bound
}

// set makes until the time for which rules let a request wait.
func (p *patience) set(rules uint16, wait time.Duration) {
	p.rules, p.until = rules, p.began.Add(wait)
	if !p.bound.IsZero() && p.bound.Before(p.until) {
		p.until = p.bound
	}
}

// refusedUntil returns until when the decision d certainly refuses w, and until when it
// does if no lease is released: leases are, at any time.
func (w *waiter) refusedUntil(d *Decision) (certain, due time.Time) {
	now := time.Now()
	due = now.Add(d.RetryAfter)
	if d.RetryAfter == Never {
		return due, due
	}
	var longest int64
	for i, o := range d.core.Outcomes() {
		if d.refuses(i) && !w.charges[i].Quota.Leases() {
			longest = max(longest, o.RetryAfter)
		}
	}
	return now.Add(micros(longest)), due
}

// mayWait reports whether each rule that refuses w lets it wait for as long as w is
// certainly refused. It makes due, when w asks again, no later than the end of its
// patience.
func (w *waiter) mayWait(p *version, d *Decision, certain time.Time, due *time.Time) bool {
	if w.request == nil {
		return true
	}
	if d.Mode == ModeRefused || d.RetryAfter == Never {
		return false
	}
	var rules uint16
	shortest := time.Duration(0)
	for i := range d.core.Outcomes() {
		if !d.refuses(i) {
			continue
		}
		wait := p.refusals[i].Wait
		if wait == 0 {
			return false
		}
		if rules == 0 || wait < shortest {
			shortest = wait
		}
		rules |= 1 << i
	}
	w.request.set(rules, shortest)
	last := w.request.until.Add(-1)
	if due.After(last) {
		*due = last
	}
	return rules != 0 && certain.Before(last)
}

// bounds removes the queues from ids whose rules let no request wait, and returns how
// many may wait in the others.
func (p *version) bounds(ids []waiting.ID) []int {
	bounds := make([]int, len(ids))
	for i := range ids {
		if p.refusals[i].Wait == 0 {
			ids[i].Policy = "" // such a queue does not exist
		}
		if bounds[i] = p.refusals[i].Waiters; bounds[i] == 0 {
			bounds[i] = defaultWaiters
		}
	}
	return bounds
}

// queuedLate reports whether w, which is in a queue, has waited as long as it may, or
// certainly will have at a time.
func (w *waiter) queuedLate(p *version, due time.Time) bool {
	rule := w.place.Rule()
	if w.request == nil {
		return !w.charges[rule].Quota.Leases() && w.late(due)
	}
	if w.request.rules>>rule&1 == 0 { // it has moved to another queue, or was not refused yet
		w.request.set(1<<rule, p.refusals[rule].Wait)
	}
	if w.late(time.Now()) {
		return true
	}
	return !w.charges[rule].Quota.Leases() && w.late(due)
}

// sleeps returns until when a request sleeps that asks at a time, if it may.
func (p *patience) sleeps(due time.Time, mayAsk bool) time.Time {
	if !mayAsk || due.After(p.until) {
		return p.until
	}
	return due
}

// firstOutcomes has the first outcomes of charges that decide alone. They count once for
// each request, however often it asks.
type firstOutcomes struct {
	asked    bool
	outcomes [core.MaxCharges]core.Outcome
	taken    *taken // what they took, if the first call refused a request that is settled
}

// keep remembers the outcomes of a first call, and has them cost nothing from then on.
// It puts them into the decisions of later calls.
func (f *firstOutcomes) keep(d *Decision, charges []core.Charge, settled bool) {
	first := !f.asked
	f.asked = true
	switch {
	case first && settled && !d.Allowed && slices.ContainsFunc(charges, func(c core.Charge) bool { return c.Alone }):
		f.taken = newTaken(d, charges)
	case !first && d.taken != nil:
		d.taken.dropAlone()
		d.taken.earlier = f.taken
	}
	for i := range charges {
		switch o := &d.core.Outcomes()[i]; {
		case !charges[i].Alone:
		case first:
			f.outcomes[i] = *o
			charges[i].Cost = 0
		default:
			*o = f.outcomes[i]
		}
	}
}
