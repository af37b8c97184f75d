package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

const (
	maxFlights = 2   // calls of a policy under way at once
	maxBatch   = 128 // decisions in a call; 128 keep Redis for about 0.6 ms
)

// A batcher sends the decisions of one policy in batches, without a timer that
// collects. A caller that finds a flight free goes at once, and alone. The
// others wait, and go together with the next flight. The scheme is that of group
// commit (DeWitt and others, 1984).
//
// Who goes alone makes the call itself, since to hand it to a goroutine and back
// would cost half as much again as the call. A flight with company is a
// goroutine, so that each of its callers can leave when it must.
type batcher struct {
	store  *Store
	policy string
	rules  *lua.Rules

	mu      sync.Mutex
	flights int
	waiting []*request // in order of arrival
}

// A request is one decision on its way. Its state belongs to the batcher's
// lock; its result to the flight until that has sent on landed.
type request struct {
	ctx      context.Context
	charges  []core.Charge
	state    state
	landed   chan struct{} // has room for one: a flight never waits for a caller
	timer    *time.Timer
	decision core.Decision
	err      error
}

type state uint8

const (
	waits state = iota // in the queue
	rides              // in a batch
	gone               // gave up in the queue
)

var requests = sync.Pool{New: func() any {
	r := &request{landed: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	return r
}}

func (b *batcher) take(ctx context.Context, charges []core.Charge) (core.Decision, error) {
	r := requests.Get().(*request)
	// A copy, because a caller that gives up takes its slice away.
	r.charges = append(r.charges[:0], charges...)
	b.store.hidden.hide(b.policy, r.charges)
	r.ctx = ctx

	b.mu.Lock()
	if b.flights < maxFlights {
		b.flights++
		b.mu.Unlock()
		defer b.handOn() // even if a hook of the client panics
		b.decide(ctx, []*request{r})
		return r.finish()
	}
	r.state = waits
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()

	r.timer.Reset(b.store.timeout)
	defer r.timer.Stop()
	select {
	case <-r.landed:
		return r.finish()
	case <-ctx.Done():
		return b.giveUp(r, ctx.Err())
	case <-r.timer.C:
		return b.giveUp(r, b.store.errTimeout)
	}
}

// finish gives r back and returns its result.
func (r *request) finish() (core.Decision, error) {
	decision, err := r.decision, r.err
	r.ctx, r.decision, r.err = nil, core.Decision{}, nil
	clear(r.charges)
	requests.Put(r)
	return decision, err
}

// giveUp leaves. What is still in the queue has taken nothing; what rides may
// have, and its request stays with the flight.
func (b *batcher) giveUp(r *request, err error) (core.Decision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state == waits {
		r.state = gone // whoever comes upon it in the queue drops it
	}
	return core.Decision{}, err
}

// handOn ends the flight of one that went alone, or gives it to those that wait.
func (b *batcher) handOn() {
	if batch := b.board(); batch != nil {
		go b.fly(batch)
	}
}

// board takes a batch from the queue. If nobody waits, the flight ends.
func (b *batcher) board() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*request
	for len(batch) < maxBatch {
		r := b.pop()
		if r == nil {
			break
		}
		r.state = rides
		batch = append(batch, r)
	}
	if batch == nil {
		b.flights--
	}
	return batch
}

// fly carries one batch after the other, as long as somebody waits.
func (b *batcher) fly(batch []*request) {
	for batch != nil {
		b.carry(batch)
		runtime.Gosched() // who lands and comes again goes with the next batch
		batch = b.board()
	}
}

// carry decides a batch, and tells its callers.
func (b *batcher) carry(batch []*request) {
	defer func() {
		if problem := recover(); problem != nil { // of a hook: in this goroutine, it would end the program
			for _, r := range batch {
				r.decision, r.err = core.Decision{}, panicked(problem)
			}
		}
		for _, r := range batch {
			r.landed <- struct{}{}
		}
	}()
	// No caller ends the call of the others; its values are for the hooks.
	b.decide(context.WithoutCancel(batch[0].ctx), batch)
}

var errPanicked = errors.New("redisstore: the client panicked")

func panicked(problem any) error {
	return fmt.Errorf("%w: %v", errPanicked, problem)
}

// pop takes the first request from the queue that has not given up.
func (b *batcher) pop() *request {
	for len(b.waiting) > 0 {
		r := b.waiting[0]
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		if r.state == waits {
			return r
		}
	}
	return nil
}

// decide calls the script for a batch and fills in the results. If the server
// refuses to run it for many decisions, each goes alone, so that one of them
// cannot fail the others.
func (b *batcher) decide(ctx context.Context, batch []*request) {
	charges := make([][]core.Charge, len(batch))
	for i, r := range batch {
		charges[i] = r.charges
	}
	reply, err := b.store.call(ctx, b.rules, charges)
	if err == nil {
		err = b.rules.Decode(reply, charges, func(i int, d core.Decision, err error) {
			batch[i].decision, batch[i].err = d, err
		})
		if err != nil {
			err = fmt.Errorf("%w: %w", core.ErrUnavailable, err)
		}
	}
	if err == nil {
		return
	}
	if len(batch) > 1 && isScriptError(err) {
		for i := range batch {
			b.decide(ctx, batch[i:i+1])
		}
		return
	}
	for _, r := range batch {
		r.decision, r.err = core.Decision{}, err
	}
}
