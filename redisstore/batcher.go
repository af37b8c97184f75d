package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

const (
	maxFlights = 2   // calls of a policy under way at once
	maxBatch   = 128 // decisions in a call; 128 keep Redis for about 0.6 ms
)

// A batcher sends the decisions of one policy in batches, without a goroutine
// or a timer of its own: of the callers, those that find a flight free lead a
// call. The others wait, and go with the next leader or become it.
//
// The scheme is that of group commit (DeWitt and others, 1984), with leaders
// handed on as in the flat combining of Hendler and others (2010).
type batcher struct {
	store *Store
	rules *lua.Rules

	mu      sync.Mutex
	flights int
	waiting []*request // in order of arrival
}

// A request is one decision on its way. Its state belongs to the batcher's
// lock; its result to the leader until it has sent on turn.
type request struct {
	charges  []core.Charge
	state    state
	turn     chan turn // has room for one: a leader never waits for a caller that gave up
	decision core.Decision
	err      error
}

type state uint8

const (
	waits state = iota // in the queue
	rides              // in a leader's batch
	leads              // to lead, or leading
	gone               // gave up in the queue
)

type turn uint8

const (
	landed turn = iota // the result is there
	lead               // lead the next call
)

var requests = sync.Pool{New: func() any { return &request{turn: make(chan turn, 1)} }}

func (b *batcher) take(ctx context.Context, charges []core.Charge) (core.Decision, error) {
	r := requests.Get().(*request)
	// A copy, because a caller that gives up takes its slice away.
	r.charges = append(r.charges[:0], charges...)

	b.mu.Lock()
	if b.flights < maxFlights {
		b.flights++
		r.state = leads
		b.mu.Unlock()
		b.fly(ctx, r)
		return r.finish()
	}
	r.state = waits
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()

	select {
	case t := <-r.turn:
		if t == lead {
			b.fly(ctx, r)
		}
		return r.finish()
	case <-ctx.Done():
		return b.giveUp(ctx, r)
	}
}

// finish gives r back and returns its result.
func (r *request) finish() (core.Decision, error) {
	decision, err := r.decision, r.err
	r.decision, r.err = core.Decision{}, nil
	clear(r.charges)
	requests.Put(r)
	return decision, err
}

// giveUp leaves. What is still in the queue or leads nobody yet has taken
// nothing; what rides may have.
func (b *batcher) giveUp(ctx context.Context, r *request) (core.Decision, error) {
	b.mu.Lock()
	was := r.state
	if was == waits {
		r.state = gone // whoever comes upon it in the queue drops it
	}
	b.mu.Unlock()
	if was == leads {
		<-r.turn
		b.handOn()
	}
	return core.Decision{}, ctx.Err()
}

// fly leads one call: with r, and with those that wait.
func (b *batcher) fly(ctx context.Context, r *request) {
	batch := []*request{r}
	b.mu.Lock()
	for len(batch) < maxBatch {
		next := b.pop()
		if next == nil {
			break
		}
		next.state = rides
		batch = append(batch, next)
	}
	b.mu.Unlock()

	defer func() {
		for _, passenger := range batch[1:] {
			passenger.turn <- landed
		}
		if len(batch) > 1 {
			runtime.Gosched() // who lands and comes again goes with the next call
		}
		b.handOn()
	}()
	for _, r := range batch {
		r.err = errAborted // what passengers find should the client panic
	}
	b.decide(ctx, batch)
}

var errAborted = errors.New("redisstore: the call was aborted")

// handOn gives the flight to the first that waits, or ends it.
func (b *batcher) handOn() {
	b.mu.Lock()
	next := b.pop()
	if next == nil {
		b.flights--
	} else {
		next.state = leads
	}
	b.mu.Unlock()
	if next != nil {
		next.turn <- lead
	}
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
