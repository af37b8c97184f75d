package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// Concurrent returns a rule that admits n requests at the same time of all that
// share a key. The lease of one whose process dies ends after 30 seconds; to
// say otherwise, write a [Rule] with the Algorithm [Concurrency].
func Concurrent(key KeyResolver, n int64) Rule {
	return Rule{Key: key, Limit: n, Window: defaultLease, Algorithm: Concurrency}
}

const (
	defaultLease = 30 * time.Second
	minLease     = time.Second // below it, one slow call of the store loses a lease
)

// Release gives back what the decision holds under rules of [Concurrency]: the
// request is done. Until then the lease is renewed every third of its Window, by
// a timer, and one that is not released is held for as long as the process
// lives. It does nothing the second time, on a copy of a released Decision, and
// on a Decision that holds nothing. It is safe for concurrent use.
//
// Handlers and the middleware for Gin and Echo call it when the handler returns
// or panics. Whoever calls [Limiter.Take] or [Policy.Decide] writes
//
//	defer d.Release()
//
// It waits for the store, for a second as far as the store heeds its context, and
// whatever the context of the request. If the store cannot be reached the lease ends by itself, after its Window.
func (d Decision) Release() {
	if d.lease != nil {
		d.lease.release()
	}
}

// A lease is what a decision holds. Copies of the decision share it.
type lease struct {
	store  Store
	policy string
	every  time.Duration // a third of the shortest Window
	lost   chan struct{} // closed with the first loss

	mu       sync.Mutex
	charges  []core.Charge // those of Concurrency that are not lost; not changed while a call has them
	renewed  time.Time     // when the last call began that has taken or renewed them
	loss     error         // the first one
	released bool
	timer    *time.Timer
	request  *losses     // those of the request, if its handler may ask for them
	told     func(error) // tells Observe of a loss, if there is a request to tell it with
}

// nameLeases gives what is leased of a request an id that no other holder has.
//
// An id is a name, and no secret: none is ever shown, and nothing takes one from
// outside. It has to differ from those of all processes, for which the random
// source of the runtime is made: ChaCha8, seeded by the system in each process.
func nameLeases(charges []core.Charge) {
	id := rand.Uint64()
	for id == 0 {
		id = rand.Uint64()
	}
	for i := range charges {
		if charges[i].Quota.Algorithm == Concurrency {
			charges[i].Lease = id
		}
	}
}

// hold returns the lease of what an admitted request has taken with a call that
// began at a time. It renews itself from now on. It is nil if nothing is leased.
func (p *Policy) hold(r *route, charges []core.Charge, began time.Time) *lease {
	l := &lease{store: p.limiter.store, policy: r.policy, renewed: began}
	for _, c := range charges {
		if c.Lease != 0 && c.Cost > 0 {
			l.charges = append(l.charges, c)
			if every := micros(c.Quota.Window) / 3; l.every == 0 || every < l.every {
				l.every = every
			}
		}
	}
	if len(l.charges) == 0 {
		return nil // all of them cost 0
	}
	l.lost = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.every, l.renew)
	return l
}

// renew renews what is held. A call that fails is made again at the next beat,
// of which there are two within a Window.
func (l *lease) renew() {
	began := time.Now()
	next := began.Add(l.every)
	l.mu.Lock()
	charges := l.charges
	l.mu.Unlock()

	ctx, cancel := context.WithDeadline(context.Background(), next)
	defer cancel()
	held, err := l.store.Renew(ctx, l.policy, charges)

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return
	}
	if err == nil && len(held) == len(charges) {
		l.renewed = began
		l.keep(held)
	} else {
		l.checkOverdue(err)
	}
	if len(l.charges) > 0 {
		l.timer.Reset(max(0, time.Until(next)))
	}
}

// keep forgets what is lost, which cannot come back.
func (l *lease) keep(held []bool) {
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

func (l *lease) release() {
	l.mu.Lock()
	if l.released {
		l.mu.Unlock()
		return
	}
	l.released = true
	l.timer.Stop()
	if len(l.charges) > 0 {
		l.checkOverdue(nil) // a process that stood still may come here before its timer
	}
	charges, loss, told := l.charges, l.loss, l.told
	l.mu.Unlock()

	if len(charges) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		_ = l.store.Release(ctx, l.policy, charges) // or it ends by itself
	}
	if loss != nil && told != nil {
		told(loss)
	}
}

// givenBack returns what is left under rule i once d is released.
func (d Decision) givenBack(i int, o core.Outcome) core.Outcome {
	if d.lease == nil {
		return o
	}
	for _, c := range d.lease.charges {
		if c.Rule == d.policy.names[i] {
			o.Remaining += c.Cost
		}
	}
	if o.Remaining >= d.policy.most[i] {
		o.MoreAfter, o.ResetAfter = 0, 0
	}
	return o
}
