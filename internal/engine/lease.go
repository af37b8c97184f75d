package engine

import (
	lists "container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// A lease is what a decision holds under rules of concurrency, or under a hold. Copies of the
// decision share it. All but the first fields belong to the lock of its renewals.
type lease struct {
	engine   *Engine
	renewals *renewals
	window   time.Duration // the shortest Window, or the life of the hold
	hold     *core.HoldID  // or nil
	unnamed  bool          // whether no other request can have that hold
	lost     chan struct{} // closed with the first loss

	charges  []core.Charge  // not lost; not changed in place
	renewed  time.Time      // when the last call began that took or renewed them
	due      time.Time      // when they are renewed at the latest
	failed   bool           // whether the last call to renew them did
	place    *lists.Element // in the renewals, or nil
	loss     error          // the first one
	released bool
	onLoss   func()      // is called with the first loss
	report   func(error) // receives the loss when the request is done
}

// identify gives the leases of a request an id that no other holder has.
//
// An id is a name and no secret: none is shown, and none is read from outside. It
// must differ from the ids of all processes, for which the runtime's random source
// is made: ChaCha8, seeded by the system in each process.
func (r *Run) identify() error {
	id := rand.Uint64()
	for id == 0 {
		id = rand.Uint64()
	}
	charges := r.asks[0].Charges
	for i := range charges {
		if charges[i].Quota.Leases() {
			charges[i].ID = id
		}
	}
	r.began = time.Now()
	return nil
}

// keepLeases has the leases of an admitted request renewed from now on. Charges of cost 0 hold
// nothing.
func (r *Run) keepLeases() error {
	d := &r.result
	if !d.Allowed {
		return nil
	}
	l := &lease{engine: r.plan.engine, renewals: &r.plan.renewals, renewed: r.began}
	for _, c := range r.asks[0].Charges {
		if c.Quota.Leases() && c.Cost > 0 {
			l.charges = append(l.charges, c)
			if window := core.Duration(c.Quota.Window); l.window == 0 || window < l.window {
				l.window = window
			}
		}
	}
	if len(l.charges) == 0 {
		return nil
	}
	l.lost = make(chan struct{})
	r.plan.renewals.add(l)
	d.lease = l
	return nil
}

// A Loss is closed with the first loss of a lease of several decisions.
type Loss struct {
	Lost chan struct{}
	once sync.Once
}

// Close closes Lost, if it is open.
func (l *Loss) Close() { l.once.Do(func() { close(l.Lost) }) }

// keepHeld drops what is lost, which cannot come back.
func (l *lease) keepHeld(held []bool) {
	var kept []core.Charge
	for i, h := range held {
		if h {
			kept = append(kept, l.charges[i])
		} else {
			l.lose(fmt.Errorf("%w: the store no longer holds that of rule %q", ErrLeaseLost, l.charges[i].Rule))
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
	if l.onLoss != nil {
		l.onLoss()
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

// every returns how often l is renewed.
func (l *lease) every() time.Duration { return l.window / 3 }

// end returns when l is lost unless it is renewed.
func (l *lease) end() time.Time { return l.renewed.Add(l.window) }

// Holds reports whether the request holds leases.
func (d *Decision) Holds() bool { return d.lease != nil }

// Lost returns a channel that is closed with the first loss of a lease, or nil if the
// request holds none.
func (d *Decision) Lost() <-chan struct{} {
	if d.lease == nil {
		return nil
	}
	return d.lease.lost
}

// OnLoss has lost called with the first loss, at once if there was one, and report with
// the loss when the leases are released. It must hold leases.
func (d *Decision) OnLoss(lost func(), report func(error)) {
	l := d.lease
	l.renewals.mu.Lock()
	defer l.renewals.mu.Unlock()
	l.onLoss, l.report = lost, report
	if l.loss != nil && lost != nil {
		lost()
	}
}

// Release gives back what the request holds. It waits up to a second for the store. If
// that is too short, the leases end by themselves.
func (d *Decision) Release() {
	if d.lease != nil {
		d.lease.release()
	}
}

// Abandon releases what the request holds, and has its hold end by itself, since nothing settles it.
func (d *Decision) Abandon() {
	d.Release()
	if d.taken != nil && d.taken.lease != nil {
		d.taken.lease.release()
	}
}

func (l *lease) release() {
	if charges, first := l.stop(); first {
		l.finish(charges, false)
	}
}

// stop has l, which may be nil, renewed no more. If it has not been before, the caller is to finish
// it, with the charges that it still holds.
func (l *lease) stop() (charges []core.Charge, first bool) {
	if l == nil {
		return nil, false
	}
	r := l.renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.released {
		return nil, false
	}
	l.released = true
	r.remove(l)
	if len(l.charges) > 0 {
		l.checkOverdue(nil) // a process that was paused may get here before its timer
	}
	return l.charges, true
}

// finish releases what l still holds, unless it has been, and reports a loss.
func (l *lease) finish(charges []core.Charge, released bool) {
	if len(charges) > 0 && l.hold == nil { // a hold is settled
		if !released {
			ctx, cancel := l.engine.settling(context.Background())
			defer cancel()
			_ = l.engine.Store.Release(ctx, charges) // otherwise it ends by itself
		}
		for i := range charges {
			l.engine.Refilled(&charges[i])
		}
	}
	l.renewals.mu.Lock()
	loss, report := l.loss, l.report
	l.renewals.mu.Unlock()
	if loss != nil && report != nil {
		report(loss)
	}
}

// units returns how many units of a rule l holds.
func (l *lease) units(rule string) (n int64) {
	if l == nil {
		return 0
	}
	for i := range l.charges {
		if l.charges[i].Rule == rule {
			n += l.charges[i].Cost
		}
	}
	return n
}
