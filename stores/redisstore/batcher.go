package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

const (
	maxInFlight = 2     // calls of a policy at the same time
	maxBatch    = 128   // decisions in a call; 128 keep Redis for about 0.6 ms
	maxWeight   = 2_500 // µs that all but the first keep Redis at worst, by [lua.Rules.Weight]
)

// A batcher sends the decisions of one policy in batches. No timer collects them:
// a decision goes at once, and alone, while fewer than maxInFlight calls are in
// flight. Others wait, and go together in the next call. The scheme is group commit
// (DeWitt and others, 1984).
//
// The goroutine of a lone decision makes the call itself: handing it to another one
// would take half as long as the call. A batch has a goroutine of its own, so that
// each of its callers can leave when its context ends.
type batcher struct {
	store  *Store
	policy string
	rules  *lua.Rules
	used   atomic.Bool // since evict last looked

	mu       sync.Mutex
	inFlight int
	queue    []*request // in order of arrival
}

// A request is one decision. The batcher's lock guards its state. Its result
// belongs to the call until that has sent on done.
type request struct {
	ctx      context.Context
	charges  []core.Charge
	state    state
	done     chan struct{} // buffered: a call never waits for a caller
	timer    *time.Timer
	decision core.Decision
	err      error
}

type state uint8

const (
	queued    state = iota
	sent            // or about to be
	abandoned       // while it was in the queue
)

var requests = sync.Pool{New: func() any {
	r := &request{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	return r
}}

func (b *batcher) take(ctx context.Context, charges []core.Charge) (core.Decision, error) {
	r := requests.Get().(*request)
	r.charges = append(r.charges[:0], charges...) // a caller that gives up takes its slice away
	b.store.hasher.replace(b.policy, r.charges)
	r.ctx = ctx

	b.mu.Lock()
	if b.inFlight < maxInFlight {
		b.inFlight++
		b.mu.Unlock()
		defer b.sendQueued() // also if a hook of the client panics
		b.decide(ctx, []*request{r})
		return r.finish()
	}
	r.state = queued
	b.queue = append(b.queue, r)
	b.mu.Unlock()

	r.timer.Reset(b.store.timeout)
	defer r.timer.Stop()
	select {
	case <-r.done:
		return r.finish()
	case <-ctx.Done():
		return b.abandon(r, ctx.Err())
	case <-r.timer.C:
		return b.abandon(r, b.late(r))
	}
}

// finish returns the result of r, and recycles r.
func (r *request) finish() (core.Decision, error) {
	decision, err := r.decision, r.err
	r.ctx, r.decision, r.err = nil, core.Decision{}, nil
	clear(r.charges)
	requests.Put(r)
	return decision, err
}

// abandon returns err for a caller that leaves. A queued request takes nothing. One
// that was sent may have taken its charges, and still belongs to the call.
func (b *batcher) abandon(r *request, err error) (core.Decision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state == queued {
		r.state = abandoned // it is dropped when its turn comes
		return core.Decision{}, err
	}
	if !takesLeases(r.charges) {
		return core.Decision{}, err
	}
	return core.Decision{}, unanswered(err, r.charges, time.Now().Add(b.store.timeout), b.store.uncertainty(b.keyOf(r)))
}

// keyOf returns the key of r that says which server decides r.
func (b *batcher) keyOf(r *request) string {
	keys, _ := b.rules.Encode("", 0, [][]core.Charge{r.charges})
	return keys[0]
}

// late returns the error of r, which has no answer within the timeout.
func (b *batcher) late(r *request) error {
	began := ticks() - int64(b.store.timeout)
	if blocked := b.store.blocked(b.keyOf(r), began); blocked != nil {
		return blocked
	}
	return b.store.errTimeout
}

// sendQueued follows the call of a lone decision with those that have queued
// meanwhile.
func (b *batcher) sendQueued() {
	if batch := b.nextBatch(); batch != nil {
		go b.drain(batch)
	}
}

// nextBatch takes a batch from the queue. It returns nil if the queue is empty: then
// there is a call less in flight.
func (b *batcher) nextBatch() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*request
	var weight int64
	for len(batch) < maxBatch {
		r := b.next()
		if r == nil {
			break
		}
		if batch != nil {
			weight += b.rules.Weight(r.charges, batch[0].charges)
		}
		if weight > maxWeight {
			break // the next call takes it
		}
		b.queue[0], b.queue = nil, b.queue[1:]
		r.state = sent
		batch = append(batch, r)
	}
	if batch == nil {
		b.inFlight--
	}
	return batch
}

// drain sends one batch after the other until the queue is empty.
func (b *batcher) drain(batch []*request) {
	for batch != nil {
		b.send(batch)
		runtime.Gosched() // callers that come again at once join the next batch
		batch = b.nextBatch()
	}
}

// send decides a batch, and wakes its callers.
func (b *batcher) send(batch []*request) {
	defer func() {
		if problem := recover(); problem != nil { // a hook: a panic in this goroutine would end the program
			for _, r := range batch {
				r.decision, r.err = core.Decision{}, panicked(problem)
			}
		}
		for _, r := range batch {
			r.done <- struct{}{}
		}
	}()
	// No caller may end the call of the others; its values are for hooks.
	b.decide(context.WithoutCancel(batch[0].ctx), batch)
}

var errPanicked = errors.New("redisstore: the client panicked")

func panicked(problem any) error {
	return fmt.Errorf("%w: %v", errPanicked, problem)
}

// next returns the first request of the queue that was not abandoned, and drops
// those before it.
func (b *batcher) next() *request {
	for len(b.queue) > 0 {
		if r := b.queue[0]; r.state == queued {
			return r
		}
		b.queue[0], b.queue = nil, b.queue[1:]
	}
	return nil
}

// decide calls the script for a batch and fills in the results. If the script fails, or
// may not use a client's key, each decision is sent alone, so that one of them cannot
// fail the others.
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
	if len(batch) > 1 && (isScriptError(err) || isRefusedKey(err)) {
		for i := range batch {
			b.decide(ctx, batch[i:i+1])
		}
		return
	}
	for _, r := range batch {
		r.decision, r.err = core.Decision{}, err
	}
}
