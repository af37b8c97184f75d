package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

const (
	maxInFlight = 2                      // calls of a batcher at the same time, but for returns 1: see most
	maxBatch    = 128                    // requests in a call; 128 keep Redis for about 0.6 ms
	maxYields   = 4                      // before a call, while requests join it: see gather
	longYield   = 5 * time.Millisecond   // of a program that uses all processors
	busyFor     = 100 * time.Millisecond // after a long yield, without any
	leftFor     = time.Second            // see batcher.left: a key that another version of a rule has charged has company
	maxWeight   = 2_500                  // µs that all but the first keep Redis at worst, by [lua.Rules.Weight]
)

// A batcher sends requests in batches: those of one shape to decide, or the returns of one policy.
// A request goes at once, and alone, while fewer than maxInFlight calls are in flight. Others wait,
// and go together in the next call: group commit (DeWitt and others, 1984). If requests came together
// lately, other goroutines run before a call: the callers that one call has answered often have
// requests for the next one.
//
// The goroutine of a lone request makes the call itself: handing it to another one would take half
// as long as the call. A batch has a goroutine of its own, so that each of its callers can leave
// when its context ends.
type batcher struct {
	part  *part
	store *Store
	rules *lua.Rules  // nil for returns
	used  atomic.Bool // since evict last looked

	// until when its calls are sent as for keys that several algorithms charge, in ticks
	tallied atomic.Int64
	others  atomic.Uint32 // the algorithms that these keys had beside those of the rules: lua.Algorithms
	left    atomic.Int64  // until when lone requests are decided as a batch, in ticks

	returner *batcher // of the same policy; nil for returns

	mu       sync.Mutex
	inFlight atomic.Int32 // written under mu
	company  bool         // whether requests came together lately
	gathers  bool         // whether a request that is to go waits for others to join it
	busy     int64        // until when nothing is gathered, in ticks
	queue    []*request   // in order of arrival
	flying   [][]*request // the batches in flight
	wakes    int64        // when a timer calls expire, in ticks, or 0
}

// A request is the asks of a call of Take, or a call of Return. The batcher's lock guards
// its state. Its result belongs to the call until that has sent on done.
type request struct {
	ctx     context.Context
	charges []core.Charge // of all asks, copies
	asks    []core.Ask
	returns []core.Return
	results []core.Returned
	batch   [][]core.Ask // of a call whose first request this is
	state   state
	due     int64         // when its caller leaves without an answer, in ticks
	late    bool          // it has none by then
	done    chan struct{} // buffered: neither a call nor a timer waits for a caller
	err     error
}

type state uint8

const (
	queued    state = iota
	sent            // or about to be
	abandoned       // while it was in the queue
)

var requests = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

// take decides asks, which have the shape of b.rules.
func (b *batcher) take(ctx context.Context, asks []core.Ask) error {
	r := requests.Get().(*request)
	for i := range asks { // a caller that gives up takes its slices away
		first := len(r.charges)
		r.charges = append(r.charges, asks[i].Charges...)
		r.asks = append(r.asks, core.Ask{Charges: slices.Clip(r.charges[first:])})
		b.store.hasher.replace(r.asks[i].Charges)
	}
	err, finished := b.do(ctx, r)
	if !finished {
		return err
	}
	for i := range asks {
		asks[i].Decision = r.asks[i].Decision
	}
	r.recycle()
	return err
}

func (b *batcher) giveBack(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	r := requests.Get().(*request)
	r.returns = append(r.returns, returns...)
	for i := range r.returns {
		b.store.hasher.replaceOne(&r.returns[i].Charge)
	}
	err, finished := b.do(ctx, r)
	if !finished {
		return nil, err
	}
	defer r.recycle()
	return r.results, err
}

// do sends a request, at once or with others. If it has not finished, it belongs to the call.
func (b *batcher) do(ctx context.Context, r *request) (err error, finished bool) {
	r.ctx = ctx
	if b.goesAlone(r) {
		defer func() { // also if a hook of the client panics
			if batch := b.nextBatch(); batch != nil {
				go b.drain(batch)
			}
		}()
		b.call(ctx, []*request{r})
		return r.err, true
	}
	if ends := ctx.Done(); ends == nil { // as with all adapters
		<-r.done
	} else {
		select {
		case <-r.done:
		case <-ends:
			b.abandon(r)
			return b.unanswered(r, ctx.Err()), false
		}
	}
	if r.late {
		return b.unanswered(r, b.tardy(r)), false
	}
	return r.err, true
}

// goesAlone reports whether the caller of r is to make a call for it. Otherwise r is in the queue.
func (b *batcher) goesAlone(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	alone := !b.gathers && int(b.inFlight.Load()) < b.most()
	if alone {
		b.inFlight.Add(1)
	}
	if alone && b.company {
		b.gathers = true
		b.gather()
		b.gathers = false
		if alone = len(b.queue) == 0; !alone {
			go func() { b.drain(b.nextBatch()) }()
		}
	}
	b.company = !alone
	if !alone {
		r.state, r.due = queued, ticks()+int64(b.store.timeout())
		b.queue = append(b.queue, r)
		b.wake(r.due)
	}
	return alone
}

// wake has a timer call expire at a time, or before. One timer for all requests costs less than one
// for each. The caller holds mu.
func (b *batcher) wake(at int64) {
	if b.wakes != 0 && b.wakes <= at {
		return
	}
	b.wakes = at
	time.AfterFunc(time.Duration(at-ticks()), func() { b.expire(at) })
}

// expire has the callers of requests without an answer leave when they are due, or a hundredth of the
// timeout later. It wakes them without the lock: there may be thousands.
func (b *batcher) expire(at int64) {
	for _, r := range b.expired(at) {
		r.done <- struct{}{}
	}
}

// expired returns the requests that are late from now on.
func (b *batcher) expired(at int64) (late []*request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at != b.wakes {
		return nil // there is an earlier timer
	}
	b.wakes = 0
	next, now := int64(0), ticks()
	for _, r := range slices.Concat(slices.Concat(b.flying...), b.queue) {
		switch {
		case r.state == abandoned || r.late:
		case r.due > now:
			next = min(cmp.Or(next, r.due), r.due)
		default:
			if r.late = true; r.state == queued {
				r.state = abandoned
			}
			late = append(late, r)
		}
	}
	if next != 0 {
		b.wake(max(next, now+int64(b.store.timeout())/100)) // not once for each of many
	}
	return late
}

// gather lets other goroutines run for as long as they add requests to the queue. It gives up mu
// meanwhile. If nothing else can run, it takes less than a microsecond. If goroutines of the program
// use all processors, it takes their time slices, of 10 ms: then calls go without it for a while.
func (b *batcher) gather() {
	at := ticks()
	for range maxYields {
		if at < b.busy {
			return
		}
		n, began := len(b.queue), at
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
		if at = ticks(); at-began > int64(longYield) {
			b.busy = at + int64(busyFor)
		}
		if len(b.queue) <= n {
			return
		}
	}
}

// most returns how many calls may be in flight. A call of returns takes the place of one that
// decides, since a larger batch costs Redis less than one more call.
func (b *batcher) most() int {
	if b.returner == nil {
		return 1
	}
	return b.store.inFlight() - int(b.returner.inFlight.Load())
}

func (r *request) recycle() {
	clear(r.charges)
	clear(r.asks)
	clear(r.returns)
	r.charges, r.asks, r.returns = r.charges[:0], r.asks[:0], r.returns[:0]
	r.ctx, r.results, r.err = nil, nil, nil
	requests.Put(r)
}

// abandon marks a request as given up by its caller. If it has not been sent, the batcher drops it
// when its turn comes.
func (b *batcher) abandon(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state == queued {
		r.state = abandoned
	}
}

// unanswered returns err for a caller that has left. An abandoned request takes nothing. One that was
// sent may have taken its charges, and still belongs to the call. Neither state changes any more.
func (b *batcher) unanswered(r *request, err error) error {
	if r.state == abandoned || !takesLeases(r.asks) {
		return err
	}
	return unanswered(err, r.asks, time.Now().Add(b.store.longest()), b.store.uncertainty(b.keyOf(r)))
}

// keyOf returns a key of r, which says which server gets r.
func (b *batcher) keyOf(r *request) string {
	if b.rules == nil {
		return lua.Key(b.part.prefix, &r.returns[0].Charge)
	}
	return lua.Key(b.part.prefix, &r.charges[0])
}

// tardy returns the error of r, which has no answer within the timeout.
func (b *batcher) tardy(r *request) error {
	return cmp.Or(b.store.blocked(b.keyOf(r), ticks()-int64(b.store.timeout())), b.store.reach.Load().err)
}

// nextBatch takes a batch from the queue. It returns nil if the queue is empty: then
// there is a call less in flight.
func (b *batcher) nextBatch() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*request
	var weight int64
	n := 0 // how many of the queue are done with
	for surplus := int(b.inFlight.Load()) > max(1, b.most()); n < len(b.queue) && len(batch) < maxBatch && !surplus; n++ {
		r := b.queue[n]
		switch {
		case r.state == abandoned:
			continue
		case batch == nil:
			batch = make([]*request, 0, min(len(b.queue)-n, maxBatch))
		default:
			weight += b.weight(r, batch[0])
		}
		if weight > maxWeight {
			break // the next call takes it
		}
		r.state = sent
		batch = append(batch, r)
	}
	b.queue = slices.Delete(b.queue, 0, n)
	if batch == nil {
		b.inFlight.Add(-1)
	} else {
		b.flying = append(b.flying, batch)
	}
	return batch
}

// weight estimates for how many µs r makes a batch longer.
func (b *batcher) weight(r, first *request) (us int64) {
	if b.rules != nil {
		return b.rules.Weight(r.asks, first.asks)
	}
	for i := range r.returns {
		us += lua.WeightOfReturn(&r.returns[i], &first.returns[0])
	}
	return us
}

// drain sends one batch after the other until the queue is empty.
func (b *batcher) drain(batch []*request) {
	for batch != nil {
		b.send(batch)
		runtime.Gosched() // callers that come again at once join the next batch
		b.mu.Lock()
		b.gather()
		b.mu.Unlock()
		batch = b.nextBatch()
	}
}

// send makes the call for a batch, and wakes its callers.
func (b *batcher) send(batch []*request) {
	err := guarded(func() error {
		// No caller may end the call of the others; its values are for hooks.
		b.call(context.WithoutCancel(batch[0].ctx), batch)
		return nil
	})
	b.mu.Lock()
	b.flying = slices.DeleteFunc(b.flying, func(flying []*request) bool { return &flying[0] == &batch[0] })
	b.mu.Unlock()
	for _, r := range batch {
		if r.late {
			continue // it has told the caller
		}
		r.err = cmp.Or(err, r.err)
		r.done <- struct{}{}
	}
}

// call calls the script for a batch and fills in the results. If the script fails, or may not use a
// client's key, each request is sent alone, so that one of them cannot fail the others.
func (b *batcher) call(ctx context.Context, batch []*request) {
	var err error
	if b.rules != nil {
		err = b.decide(ctx, batch)
	} else {
		err = b.returnUnits(ctx, batch)
	}
	if err == nil {
		return
	}
	if len(batch) > 1 && (isScriptError(err) || isRefusedKey(err) || errors.Is(err, lua.ErrValue)) {
		for i := range batch {
			b.call(ctx, batch[i:i+1])
		}
		return
	}
	for _, r := range batch {
		r.err = err
	}
}

func (b *batcher) decide(ctx context.Context, batch []*request) error {
	asks := batch[0].batch[:0]
	for _, r := range batch {
		asks = append(asks, r.asks)
	}
	defer func() { clear(asks); batch[0].batch = asks }()
	tallied, now := b.talliedScript(), ticks()
	lone := len(asks) == 1 && tallied == nil && b.rules.One != nil && b.left.Load() <= now
	reply, left, err := b.store.decide(ctx, b.rules, asks, tallied, lone)
	if left {
		b.left.Store(now + int64(leftFor))
	}
	if err != nil {
		return err
	}
	err = b.rules.Decode(reply, asks, func(i int, err error) { batch[i].err = err })
	if err != nil {
		return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	b.decideTallied(ctx, batch, tallied)
	return nil
}

func (b *batcher) returnUnits(ctx context.Context, batch []*request) error {
	s, all := b.store, slices.Clip(batch[0].returns)
	for _, r := range batch[1:] {
		all = append(all, r.returns...)
	}
	var results []core.Returned
	var err error
	if len(batch) > 1 {
		results, err = s.giveBack(ctx, lua.JoinReturns(b.part.prefix, s.now(), s.grace, all))
	} else {
		results, err = s.giveBack(ctx, lua.NewReturns(b.part.prefix, s.now(), s.grace, all, false))
		if errors.Is(err, lua.ErrValue) { // maybe of a key that several algorithms charge
			results, err = s.giveBack(ctx, lua.NewReturns(b.part.prefix, s.now(), s.grace, all, true))
		}
	}
	if err != nil {
		return err
	}
	for _, r := range batch {
		n := len(r.returns)
		r.results, results = results[:n:n], results[n:]
	}
	return nil
}

func (s *Store) giveBack(ctx context.Context, c *lua.Returns) ([]core.Returned, error) {
	var reply []int64
	for _, script := range []*lua.Script{c.One, c.Script} {
		if script == nil || len(reply) > 0 {
			continue
		}
		var err error
		if reply, err = s.run(ctx, &invocation{script: script, keys: c.Keys, args: c.Args}); err != nil {
			return nil, err
		}
	}
	return c.Decode(reply)
}
