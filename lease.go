package limit

import (
	"context"
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
	store   Store
	policy  string
	charges []core.Charge // those of Concurrency; not changed while a call has them
	every   time.Duration // a third of the shortest Window

	mu    sync.Mutex
	done  bool // released, or all is lost
	timer *time.Timer
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

// hold returns the lease of what an admitted request has taken, which renews
// itself from now on, or nil if none of it is leased.
func (p *Policy) hold(r *route, charges []core.Charge) *lease {
	l := &lease{store: p.limiter.store, policy: r.policy}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.every, l.renew)
	return l
}

// renew renews what is held. A call that fails is made again at the next beat,
// of which there are two within a Window.
func (l *lease) renew() {
	next := time.Now().Add(l.every)
	l.mu.Lock()
	charges := l.charges
	l.mu.Unlock()

	ctx, cancel := context.WithDeadline(context.Background(), next)
	defer cancel()
	held, err := l.store.Renew(ctx, l.policy, charges)

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	if err == nil && len(held) == len(charges) {
		l.keep(held)
	}
	if !l.done {
		l.timer.Reset(max(0, time.Until(next)))
	}
}

// keep forgets what is lost, which cannot come back.
func (l *lease) keep(held []bool) {
	var kept []core.Charge
	for i, h := range held {
		if h {
			kept = append(kept, l.charges[i])
		}
	}
	l.charges, l.done = kept, len(kept) == 0
}

func (l *lease) release() {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return
	}
	l.done = true
	l.timer.Stop()
	charges := l.charges
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.store.Release(ctx, l.policy, charges) // or it ends by itself
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
