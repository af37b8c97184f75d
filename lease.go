package limit

import (
	lists "container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// Concurrent returns a rule that admits n requests at the same time of all that
// share a key. The lease of a process that dies ends after 30 seconds. To choose
// another time, write a [Rule] with the Algorithm [Concurrency].
func Concurrent(key KeyResolver, n int64) Rule {
	return Rule{Key: key, Limit: n, Window: defaultLease, Algorithm: Concurrency{}}
}

const (
	defaultLease = 30 * time.Second
	minLease     = time.Second // below it, one slow call of the store loses a lease
)

// ErrLeaseLost is wrapped by the error that [Options].Observe receives when a
// request has lost a lease: see [Decision.Lost].
var ErrLeaseLost = errors.New("limit: a lease was lost")

// Release gives back what the decision holds under rules of [Concurrency], when
// the request is done. Handlers and adapters release what they decided; callers
// of [Policy.Take] and [Adapter.Decide] write
//
//	defer d.Release()
//
// Until then the lease is renewed, at least every third of its Window, for as long as
// the process lives. Release does nothing on a Decision that holds nothing or was
// released, a copy included. It waits up to a second for the store, whatever the
// context of the request. If the store is unavailable, the lease is released when it
// answers again, and ends by itself after its Window. It is safe for concurrent use.
func (d Decision) Release() {
	if d.lease != nil {
		d.lease.release()
	}
}

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
func (d Decision) Lost() <-chan struct{} {
	if d.lease == nil {
		return nil
	}
	return d.lease.lost
}

// Lost returns a channel that is closed when one of the decisions that admitted a
// request has lost a lease: see [Decision.Lost]. The context is that of the
// request in its handler. The channel is nil if the request holds nothing. To end
// work that goes by a context:
//
//	ctx, cancel := context.WithCancelCause(r.Context())
//	defer cancel(nil)
//	go func() {
//		select {
//		case <-limit.Lost(ctx):
//			cancel(limit.ErrLeaseLost)
//		case <-ctx.Done():
//		}
//	}()
func Lost(ctx context.Context) <-chan struct{} {
	if l, ok := ctx.Value(lossKey{}).(*requestLoss); ok {
		return l.lost
	}
	return nil
}

// A lease is what a decision holds. Copies of the decision share it. All but the first
// four fields belong to the lock of its renewals.
type lease struct {
	limiter  *Limiter
	renewals *renewals
	window   time.Duration // the shortest Window
	lost     chan struct{} // closed with the first loss

	charges  []core.Charge  // of Concurrency and not lost; not changed in place
	renewed  time.Time      // when the last call began that took or renewed them
	due      time.Time      // when they are renewed at the latest
	failed   bool           // whether the last call to renew them did
	place    *lists.Element // in the renewals, or nil
	loss     error          // the first one
	released bool
	request  *requestLoss // of the request, if its handler may ask
	report   func(error)  // reports a loss to Observe, if there is a request
}

// nameLeases gives the leases of a request an id that no other holder has.
//
// An id is a name and no secret: none is shown, and none is read from outside. It
// must differ from the ids of all processes, for which the runtime's random source
// is made: ChaCha8, seeded by the system in each process.
func nameLeases(charges []core.Charge) {
	id := rand.Uint64()
	for id == 0 {
		id = rand.Uint64()
	}
	for i := range charges {
		if charges[i].Quota.Leases() {
			charges[i].ID = id
		}
	}
}

// newLease returns the lease of an admitted request, which is renewed from now on. The
// call that took it began at a time. The lease is nil if nothing is held.
func (p *version) newLease(r *route, charges []core.Charge, began time.Time) *lease {
	l := &lease{limiter: p.limiter, renewals: &r.renewals, renewed: began}
	for _, c := range charges {
		if c.Quota.Leases() && c.Cost > 0 {
			l.charges = append(l.charges, c)
			if window := micros(c.Quota.Window); l.window == 0 || window < l.window {
				l.window = window
			}
		}
	}
	if len(l.charges) == 0 {
		return nil // all of them cost 0
	}
	l.lost = make(chan struct{})
	r.renewals.add(l)
	return l
}

// keep drops what is lost, which cannot come back.
func (l *lease) keep(held []bool) {
	var kept []core.Charge
	for i, h := range held {
		if h {
			kept = append(kept, l.charges[i])
		} else {
			l.lose(fmt.Errorf("%w: the store no longer holds that of rule %q", ErrLeaseLost, ruleName(l.charges[i].Rule)))
		}
	}
	l.charges = kept
}

// lose records the first loss.
func (l *lease) lose(loss error) {
	if l.loss != nil {
		return
	}
	l.loss = loss
	close(l.lost)
	if l.request != nil {
		l.request.close()
	}
}

// checkOverdue records a loss if no renewal has succeeded for a Window. The last
// problem may be nil.
func (l *lease) checkOverdue(problem error) {
	if time.Since(l.renewed) < l.window {
		return
	}
	loss := fmt.Errorf("%w: not renewed for %v", ErrLeaseLost, l.window)
	if problem != nil {
		loss = fmt.Errorf("%w: %w", loss, problem)
	}
	l.lose(loss)
}

func (l *lease) release() {
	r := l.renewals
	r.mu.Lock()
	if l.released {
		r.mu.Unlock()
		return
	}
	l.released = true
	r.remove(l)
	if len(l.charges) > 0 {
		l.checkOverdue(nil) // a process that was paused may get here before its timer
	}
	charges, loss, report := l.charges, l.loss, l.report
	r.mu.Unlock()

	if len(charges) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		defer cancel()
		_ = l.limiter.store.Release(ctx, r.policy, charges) // otherwise it ends by itself
		for _, c := range charges {
			l.limiter.refilled(r.policy, c.Rule, c.Key)
		}
	}
	if loss != nil && report != nil {
		report(loss)
	}
}

// afterRelease returns what is left under rule i once d is released.
func (d Decision) afterRelease(i int, o core.Outcome) core.Outcome {
	if d.lease == nil {
		return o
	}
	for _, c := range d.lease.charges {
		if ruleName(c.Rule) == d.policy.names[i] {
			o.Remaining += c.Cost
		}
	}
	if o.Remaining >= d.caller.terms.capacities[i] {
		o.MoreAfter, o.ResetAfter = 0, 0
	}
	return o
}

// A requestLoss is closed with the first loss of all decisions on a request.
type requestLoss struct {
	lost chan struct{}
	once sync.Once
}

type lossKey struct{}

func (l *requestLoss) close() { l.once.Do(func() { close(l.lost) }) }

// lossContext returns the request to call the handler with: r or, if d holds
// something, a copy with a context that [Lost] knows.
func (d Decision) lossContext(r *http.Request) *http.Request {
	if d.lease == nil {
		return r
	}
	l, ok := r.Context().Value(lossKey{}).(*requestLoss)
	if !ok {
		l = &requestLoss{lost: make(chan struct{})}
		r = r.WithContext(context.WithValue(r.Context(), lossKey{}, l))
	}
	d.lease.renewals.mu.Lock()
	defer d.lease.renewals.mu.Unlock()
	d.lease.request = l
	if d.lease.loss != nil {
		l.close()
	}
	return r
}

// reportLoss has a loss reported to Observe when d is released, and not before:
// until then the handler may use the request, which is not safe to read beside
// it. Call it only if d holds a lease: otherwise d would escape to the heap.
func (d Decision) reportLoss(r *http.Request) {
	l := d.policy.limiter
	d.lease.renewals.mu.Lock()
	defer d.lease.renewals.mu.Unlock()
	d.lease.report = func(loss error) { l.failed(lostLease, r, d, loss) }
}
