package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// hold stops calls at the client until they are let go.
type hold struct {
	arrived chan struct{}
	release chan struct{}
}

func holdCalls(client redis.UniversalClient) *hold {
	h := &hold{arrived: make(chan struct{}, 1000), release: make(chan struct{})}
	before(client, isTake, func(redis.Cmder) {
		h.arrived <- struct{}{}
		<-h.release
	})
	return h
}

// awaitQueued waits until n decisions are in the queue.
func awaitQueued(b *batcher, n int) {
	for {
		b.mu.Lock()
		waiting := 0
		for _, r := range b.queue {
			if r.state == queued {
				waiting++
			}
		}
		b.mu.Unlock()
		if waiting == n {
			return
		}
		runtime.Gosched()
	}
}

// idle waits until no call is in flight.
func idle(t *testing.T, b *batcher) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.inFlight.Load() == 0
	}, 10*time.Second, time.Millisecond)
}

func TestBatching(t *testing.T) {
	client := redistest.Client(t)
	calls := holdCalls(client)
	store := New(client, &Options{Timeout: time.Minute})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}

	var done sync.WaitGroup
	take := func() {
		done.Go(func() {
			d, err := storetest.Take(context.Background(), store, "p", charges)
			assert.NoError(t, err)
			assert.True(t, d.Allowed)
		})
	}
	take()
	<-calls.arrived // a lone decision goes at once
	take()
	<-calls.arrived // and so does a second
	for range 100 {
		take()
	}
	awaitQueued(store.batcher(ask(charges)), 100)
	assert.Empty(t, calls.arrived, "no third call while two are under way")
	close(calls.release)
	done.Wait()
	assert.LessOrEqual(t, len(calls.arrived), 4, "100 decisions in few calls (one more for a script that is not loaded)")

	d := storetest.MustTake(t, store, charges...)
	assert.EqualValues(t, 1000-103, d.Outcomes()[0].Remaining)
	b := store.batcher(ask(charges))
	idle(t, b)
	assert.Empty(t, b.queue)
}

// TestGathering has requests come one right after the other: those that come while one gathers
// join it.
func TestGathering(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var b batcher
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := 0; i < 100 && len(b.queue) <= 16; i++ { // the runtime may have other work first
		b.queue, b.busy = nil, 0
		for range 32 {
			go func() {
				b.mu.Lock()
				b.queue = append(b.queue, new(request))
				b.mu.Unlock()
			}()
		}
		b.gather()
	}
	assert.Greater(t, len(b.queue), 16)
}

// TestBusyProcessors has other goroutines use the processor: once a call has waited for that, the next
// ones do not.
func TestBusyProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var b batcher
	var others atomic.Int64
	gather := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		go func() {
			others.Add(1)
			for began := ticks(); ticks()-began < 2*int64(longYield); {
				_ = began // it uses the processor
			}
		}()
		b.gather()
	}
	for i := 0; i < 100 && b.busy == 0; i++ { // the runtime may have other work first
		gather()
	}
	require.NotZero(t, b.busy)
	b.busy = ticks() + int64(time.Hour)
	before := others.Load()
	gather()
	assert.Equal(t, before, others.Load())
}

// TestGivingUp has callers give up in every state; their neighbours
// are decided, what never left the queue is not charged, and no flight is lost.
func TestGivingUp(t *testing.T) {
	client := redistest.Real(t)
	calls := holdCalls(client)
	store := New(client, &Options{Timeout: time.Minute})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	b := store.batcher(ask(charges))

	var done sync.WaitGroup
	var decided, gaveUp atomic.Int64
	take := func(ctx context.Context) {
		done.Go(func() {
			mine := ask(charges)
			err := store.Take(ctx, mine)
			clear(mine[0].Charges) // the slices are the caller's again
			clear(mine)
			switch {
			case err == nil:
				decided.Add(1)
			case errors.Is(err, context.Canceled):
				gaveUp.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	leaving, leave := context.WithCancel(context.Background())
	for range maxInFlight { // these make their calls themselves, and see it then
		take(leaving)
		<-calls.arrived
	}
	for range 20 {
		take(leaving)
		take(context.Background())
	}
	awaitQueued(b, 40)
	leave()
	awaitQueued(b, 20)
	for gaveUp.Load() < 20 {
		runtime.Gosched()
	}
	close(calls.release)
	done.Wait()
	assert.EqualValues(t, 20, decided.Load())
	assert.EqualValues(t, 22, gaveUp.Load())
	d := storetest.MustTake(t, store, charges...)
	assert.EqualValues(t, 1000-21, d.Outcomes()[0].Remaining, "the request that left the queue was not charged")
	idle(t, b)

	// The same at random times.
	var some sync.WaitGroup
	for i := range 500 {
		some.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*20*time.Microsecond)
			defer cancel()
			storetest.Take(ctx, store, "p", charges)
		})
	}
	some.Wait()
	idle(t, b)
	_, err := storetest.Take(t.Context(), store, "p", charges)
	assert.NoError(t, err)
}

// TestBatchOutlivesItsFirst has the first caller of a batch leave while the call is in
// flight: the others are decided.
func TestBatchOutlivesItsFirst(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &Options{Timeout: time.Minute})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	b := store.batcher(ask(charges))
	storetest.MustTake(t, store, charges...) // loads the script
	calls := holdCalls(client)
	var done sync.WaitGroup
	take := func(ctx context.Context, want error) {
		done.Go(func() {
			_, err := storetest.Take(ctx, store, "p", charges)
			assert.ErrorIs(t, err, want)
		})
	}
	for range maxInFlight {
		take(context.Background(), nil)
		<-calls.arrived
	}
	leaving, leave := context.WithCancel(context.Background())
	take(leaving, context.Canceled)
	awaitQueued(b, 1)
	take(context.Background(), nil)
	awaitQueued(b, 2)
	calls.release <- struct{}{} // of one that went alone
	<-calls.arrived             // the batch
	leave()
	close(calls.release)
	done.Wait()
	idle(t, b)
}

// TestCallGivenUpCounts has a caller leave while its call is in flight. That says nothing
// about the store, but the server may have been replaced: the next call asks which it is.
func TestCallGivenUpCounts(t *testing.T) {
	client := redistest.Real(t)
	store := New(client, &Options{Timeout: time.Minute})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	storetest.MustTake(t, store, charges...)
	var asked atomic.Int64
	var leave context.CancelFunc
	before(client, is("info"), func(redis.Cmder) { asked.Add(1) })
	before(client, isTake, func(redis.Cmder) {
		if leave != nil {
			leave()
		}
	})
	recent(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	leave = cancel
	_, err := storetest.Take(ctx, store, "p", charges)
	require.ErrorIs(t, err, context.Canceled)
	leave = nil
	require.Zero(t, asked.Load())
	recent(t, store)
	storetest.MustTake(t, store, charges...)
	require.EqualValues(t, 1, asked.Load())
}

func TestErrorsOfACall(t *testing.T) {
	errFault := errors.New("connection lost")
	scriptError := func(msg string) error { return scriptFault(msg) }
	tests := []struct {
		name   string
		fault  func(decisions int) error
		failed bool
	}{
		{"a lost connection fails all of the call", func(int) error { return errFault }, true},
		{"an error of the script fails the decisions that fail alone", func(n int) error {
			if n > 1 {
				return scriptError("ERR user_script:1: attempt to index a nil value")
			}
			return nil
		}, false},
		{"an overloaded server is not asked again for each", func(int) error { return scriptError("OOM command not allowed") }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client := redistest.Client(t)
			store := New(client, &Options{Timeout: time.Minute})
			charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
			storetest.MustTake(t, store, charges...) // loads the script
			calls := holdCalls(client)
			client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if isTake(cmd) {
					blob := cmd.Args()[len(cmd.Args())-2].([]byte)
					if err := test.fault(len(blob) / 8); err != nil {
						cmd.SetErr(err)
						return err
					}
				}
				return next(ctx, cmd)
			}))
			var done sync.WaitGroup
			var failed atomic.Int64
			take := func() {
				done.Go(func() {
					if _, err := storetest.Take(context.Background(), store, "p", charges); err != nil {
						failed.Add(1)
					}
				})
			}
			for range maxInFlight {
				take()
				<-calls.arrived
			}
			for range 30 {
				take()
			}
			b := store.batcher(ask(charges))
			awaitQueued(b, 30)
			close(calls.release)
			done.Wait()
			if test.failed {
				assert.EqualValues(t, 32, failed.Load())
				assert.LessOrEqual(t, len(calls.arrived), 3)
			} else {
				assert.Zero(t, failed.Load())
			}
			idle(t, b)
		})
	}
}

type scriptFault string

func (e scriptFault) Error() string { return string(e) }
func (scriptFault) RedisError()     {}

// TestRefusedKeyInBatch has a client choose a key that the Redis user may not touch:
// decisions in the same batch do not fail with it.
func TestRefusedKeyInBatch(t *testing.T) {
	admin := redistest.Real(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "digits", "reset", "on", ">secret", "~limit:1:{p}:r:[0-9]*", "+@all").Err())
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "digits", Password: "secret"}))
	store := New(client, &Options{Timeout: 10 * time.Second})
	batch := make([]*request, 0, 3)
	for _, key := range []string{"1", "k", "2"} {
		r := ask([]core.Charge{charge("r", key, 1000, time.Minute)})
		batch = append(batch, &request{asks: r, charges: r[0].Charges})
	}
	store.batcher(batch[0].asks).call(t.Context(), batch)
	assert.NoError(t, batch[0].err)
	assert.ErrorContains(t, batch[1].err, "NOPERM")
	assert.NotErrorIs(t, batch[1].err, core.ErrUnavailable)
	assert.NoError(t, batch[2].err)
}

// TestReturnsTakeAPlace has a call of returns in flight. One call less decides then, at least one
// does, and no request is left in a queue of which no call is in flight.
func TestReturnsTakeAPlace(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &Options{Timeout: time.Minute})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	var returns []core.Return
	for range 3 {
		d := storetest.MustTake(t, store, charges...)
		returns = append(returns, d.Return(0, charges[0]))
	}
	_, err := storetest.Return(t.Context(), store, "p", returns[2:]) // the scripts are loaded
	require.NoError(t, err)
	arrived, release := [2]chan struct{}{}, [2]chan struct{}{} // of calls that decide, and of returns
	for i := range arrived {
		arrived[i], release[i] = make(chan struct{}, 1000), make(chan struct{})
	}
	before(client, isTake, func(cmd redis.Cmder) {
		kind := 0
		if keys := cmd.Args()[2].(int); len(cmd.Args()) == 3+keys+4 {
			kind = 1
		}
		arrived[kind] <- struct{}{}
		<-release[kind]
	})
	b, returner := store.batcher(ask(charges)), store.returner("p")
	require.Same(t, returner, b.returner)
	var done sync.WaitGroup
	take := func() {
		done.Go(func() {
			_, err := storetest.Take(context.Background(), store, "p", charges)
			assert.NoError(t, err)
		})
	}
	giveBack := func(r core.Return) {
		done.Go(func() {
			_, err := storetest.Return(context.Background(), store, "p", []core.Return{r})
			assert.NoError(t, err)
		})
		<-arrived[1]
	}

	giveBack(returns[0])
	take()
	<-arrived[0] // although returns are in flight
	take()
	awaitQueued(b, 1) // since they are
	release[0] <- struct{}{}
	<-arrived[0] // the queue
	release[0] <- struct{}{}
	idle(t, b)
	release[1] <- struct{}{}
	idle(t, returner)

	for range maxInFlight {
		take()
		<-arrived[0]
	}
	take()
	awaitQueued(b, 1)
	giveBack(returns[1])     // does not wait for calls that decide
	release[0] <- struct{}{} // leaves the queue to the other call
	require.Eventually(t, func() bool { return b.inFlight.Load() == 1 }, 10*time.Second, time.Millisecond)
	release[1] <- struct{}{}
	idle(t, returner)
	awaitQueued(b, 1)
	assert.Empty(t, arrived[0])
	take() // goes at once again, and the queue with it
	<-arrived[0]
	b.mu.Lock()
	assert.Empty(t, b.queue)
	b.mu.Unlock()
	close(release[0])
	done.Wait()
	idle(t, b)
	assert.Empty(t, b.queue)

	for _, distance := range []time.Duration{0, 2 * far} {
		s := &Store{adapts: true}
		s.reach.Store(newReach(time.Second, distance))
		near := &batcher{store: s, returner: &batcher{store: s}}
		all := map[time.Duration]int{0: maxInFlight, 2 * far: farInFlight}[distance]
		assert.Equal(t, all, near.most())
		near.returner.inFlight.Store(1)
		assert.Equal(t, all-1, near.most())
		assert.Equal(t, 1, near.returner.most())
	}
}

// TestOneTimer has one timer for requests that are due, whether they were sent or are queued, and for
// those that are not.
func TestOneTimer(t *testing.T) {
	b := New(redis.NewClient(&redis.Options{}), nil).batcher(ask([]core.Charge{charge("r", "k", 1000, time.Minute)}))
	add := func(due int64) *request {
		r := &request{due: due, done: make(chan struct{}, 1), asks: ask([]core.Charge{charge("r", "k", 1000, time.Minute)})}
		b.queue = append(b.queue, r)
		return r
	}
	now := ticks()
	later := now + int64(time.Hour)
	sent := add(now)
	require.Len(t, b.nextBatch(), 1)
	first, waits, gone, last := add(now), add(later), add(now), add(later+1)
	gone.state = abandoned
	b.wakes = now
	b.expire(now - 1)
	require.False(t, sent.late || first.late, "another timer is set")
	b.expire(now)
	for r, late := range map[*request]bool{sent: true, first: true, waits: false, gone: false, last: false} {
		require.Equal(t, late, r.late)
		require.Equal(t, late, len(r.done) == 1)
	}
	require.Equal(t, later, b.wakes)
	b.wake(later + 1)
	require.Equal(t, later, b.wakes)
	b.wake(later - 1)
	require.Equal(t, later-1, b.wakes, "the timeout has become shorter")
	require.Equal(t, []*request{waits, last}, b.nextBatch(), "what has left is not sent")
	require.Empty(t, b.queue)

	for _, r := range []*request{waits, last} {
		r.due = now
	}
	b.expire(b.wakes)
	require.True(t, waits.late && last.late)
	require.Zero(t, b.wakes, "no timer is set while nothing waits")
}

// TestCallerLeavesInTime has a caller leave although neither its context nor a call ends.
func TestCallerLeavesInTime(t *testing.T) {
	store := New(redis.NewClient(&redis.Options{}), &Options{Timeout: time.Millisecond})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	store.batcher(ask(charges)).inFlight.Store(maxInFlight)
	left := make(chan error, 1)
	go func() { left <- store.Take(context.Background(), ask(charges)) }()
	select {
	case err := <-left:
		require.ErrorIs(t, err, core.ErrOutOfReach)
	case <-time.After(10 * time.Second):
		t.Fatal("no timer is set")
	}
}

// TestCallersLeaveTogether has the timer wake a caller that does not run: requests that come meanwhile
// do not wait for that.
func TestCallersLeaveTogether(t *testing.T) {
	b := New(redis.NewClient(&redis.Options{}), nil).batcher(ask([]core.Charge{charge("r", "k", 1000, time.Minute)}))
	r := &request{due: ticks(), done: make(chan struct{})}
	b.queue, b.wakes = []*request{r}, r.due
	go b.expire(r.due)
	require.Eventually(t, func() bool {
		if !b.mu.TryLock() {
			return false
		}
		defer b.mu.Unlock()
		return r.late
	}, 10*time.Second, time.Millisecond)
	<-r.done
}

// TestLateAnswer has a call end after one of its callers has left: the others get their answers.
func TestLateAnswer(t *testing.T) {
	var batch []*request
	for range 2 {
		asks := ask([]core.Charge{charge("r", "k", 1000, time.Minute)})
		batch = append(batch, &request{ctx: context.Background(), asks: asks, charges: asks[0].Charges, done: make(chan struct{}, 1)})
	}
	batch[0].late = true
	batch[0].done <- struct{}{} // its context ended at the same time
	go New(redistest.Client(t), &Options{Timeout: time.Minute}).batcher(batch[0].asks).send(batch)
	select {
	case <-batch[1].done:
		require.NoError(t, batch[1].err)
	case <-time.After(10 * time.Second):
		t.Fatal("the call waits for a caller that has left")
	}
}

// TestAnswersAllocateNothing looks through the answers of a call for those to decide again: there are
// none but while a rule changes its algorithm.
func TestAnswersAllocateNothing(t *testing.T) {
	b, batch := new(batcher), []*request{{}, {}, {}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { b.decideTallied(context.Background(), batch, nil) }))
}
