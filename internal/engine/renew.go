package engine

import (
	lists "container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// renewals renews the leases of a plan, as many as possible in one call. It has a
// timer while there are leases, and a goroutine while a call is in flight. There is at
// most one such call, so leases that were taken at the same time do not crowd out the
// calls of requests.
type renewals struct {
	engine *Engine
	timer  *time.Timer

	mu      sync.Mutex
	leases  lists.List // of *lease, by due
	armed   bool       // whether the timer runs
	calling bool       // whether a call is in flight, which arms the timer afterwards
}

// early is by which part of the time between two renewals a lease may be renewed before it is
// due. Leases that are due within that time share a call. The call comes at a random moment of
// it, which spreads the calls of this process and of others.
const early = 4

// add has a lease renewed from now on.
func (r *renewals) add(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.due = l.renewed.Add(l.every())
	r.insert(l)
	if !r.calling && (!r.armed || r.leases.Front() == l.place) { // one that is shorter than those before
		r.arm()
	}
}

// insert inserts l in order, which is at the end unless its renewal has failed.
func (r *renewals) insert(l *lease) {
	last := r.leases.Back()
	for last != nil && last.Value.(*lease).due.After(l.due) {
		last = last.Prev()
	}
	if last == nil {
		l.place = r.leases.PushFront(l)
	} else {
		l.place = r.leases.InsertAfter(l, last)
	}
}

// remove has a lease renewed no more. The timer goes on: usually there is a next lease.
func (r *renewals) remove(l *lease) {
	if l.place != nil {
		r.leases.Remove(l.place)
		l.place = nil
	}
}

// soonest returns when a lease may be renewed. After a failure that is when it is due,
// so that calls that fail at once do not follow each other.
func (r *renewals) soonest(l *lease) time.Time {
	if l.failed {
		return l.due
	}
	return l.due.Add(-l.every() / early)
}

// arm sets the timer for the first lease, if there is one.
func (r *renewals) arm() {
	first := r.leases.Front()
	if r.armed = first != nil; !r.armed {
		return
	}
	l := first.Value.(*lease)
	wait := time.Until(r.soonest(l))
	if !l.failed {
		wait += rand.N(l.every() / early)
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.renew)
	} else {
		r.timer.Reset(wait)
	}
}

// renew renews the first leases, as far as one call can. Those of a call that fails are
// renewed again a third of the Window later: there are two calls within a Window.
func (r *renewals) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calling { // the timer was set anew when it had just fired
		return
	}
	defer r.arm()
	began := time.Now()
	batch, charges := r.batch(began)
	if batch == nil {
		return
	}
	until := began.Add(batch[0].every())
	if end := batch[0].end(); end.After(began) && end.Before(until) {
		until = end // so that a loss is noticed in time
	}
	r.calling = true
	r.mu.Unlock()
	leases, holds := r.ask(batch, charges, until)
	r.mu.Lock()
	r.calling = false

	for _, l := range batch {
		from := &leases
		if l.hold != nil {
			from = &holds
		}
		mine := from.held[:len(l.charges)]
		from.held = from.held[len(mine):]
		if l.released {
			continue
		}
		if from.known || !slices.Contains(mine, false) {
			l.renewed, l.failed, l.due = began, false, began.Add(l.every())
			l.keepHeld(mine)
		} else {
			l.checkOverdue(from.err)
			l.failed, l.due = true, began.Add(l.every())
			if end := l.end(); end.After(time.Now()) && end.Before(l.due) {
				l.due = end
			}
		}
		if len(l.charges) > 0 {
			r.insert(l)
		}
	}
}

// ask asks the store to renew leases and holds, with these charges. They are two calls, and one
// that fails says nothing of what the other is about.
func (r *renewals) ask(batch []*lease, charges []core.Charge, until time.Time) (leases, holds renewed) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	var extensions []core.Extension
	var leased []core.Charge
	for _, l := range batch {
		for _, c := range charges[:len(l.charges)] {
			if l.hold != nil {
				extensions = append(extensions, core.Extension{Charge: c, Hold: *l.hold, Life: l.window.Microseconds()})
			} else {
				leased = append(leased, c)
			}
		}
		charges = charges[len(l.charges):]
	}
	leases.call(len(leased), func() ([]bool, error) { return r.engine.Store.Renew(ctx, leased) })
	holds.call(len(extensions), func() ([]bool, error) { return r.engine.Holder.Extend(ctx, extensions) })
	return leases, holds
}

// A renewed is what one call has come to.
type renewed struct {
	held  []bool // for each of its charges
	known bool   // whether the store has answered for all of them
	err   error
}

// call makes a call about n charges, if there are any. A panic of it counts as a failure: in the
// goroutine of a timer it would end the program.
func (r *renewed) call(n int, ask func() ([]bool, error)) {
	if n == 0 {
		return
	}
	defer func() {
		if problem := recover(); problem != nil {
			r.err = fmt.Errorf("limit: the store panicked: %v", problem)
		}
		if r.known = r.err == nil && len(r.held) == n; len(r.held) != n {
			r.held = make([]bool, n)
		}
	}()
	r.held, r.err = ask()
}

// batch takes the leases out that one call renews at a time, with their charges.
func (r *renewals) batch(now time.Time) (batch []*lease, charges []core.Charge) {
	for first := r.leases.Front(); first != nil; first = r.leases.Front() {
		l := first.Value.(*lease)
		if r.soonest(l).After(now) || len(charges)+len(l.charges) > core.MaxLeaseCharges {
			break
		}
		r.remove(l)
		batch, charges = append(batch, l), append(charges, l.charges...)
	}
	return batch, charges
}
