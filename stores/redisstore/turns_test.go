package redisstore

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestTurns has 600 callers decide on 300 policies at once. Their calls leave
// connections to the program, and all are answered.
func TestTurns(t *testing.T) {
	direct := redistest.Real(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: direct.Options().Addr, PoolSize: 10, ContextTimeoutEnabled: true, PoolTimeout: time.Minute, ReadTimeout: time.Minute}))
	const turns = 8
	var inFlight, most atomic.Int64
	full := make(chan struct{})
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if isTake(cmd) {
			n := inFlight.Add(1)
			defer inFlight.Add(-1)
			if n > most.Load() {
				most.Store(n)
			}
			if n == turns {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			<-full
		}
		return next(ctx, cmd)
	}))
	store := New(client, &Options{Timeout: time.Minute})
	var done sync.WaitGroup
	for i := range 600 {
		done.Go(func() {
			d, err := storetest.Take(context.Background(), store, fmt.Sprint("p", i%300), []core.Charge{charge("r", "k", 2, time.Hour)})
			assert.NoError(t, err)
			assert.True(t, d.Allowed)
		})
	}
	done.Wait()
	assert.EqualValues(t, turns, most.Load())
	assert.LessOrEqual(t, client.PoolStats().TotalConns, uint32(turns+1), "and one that asks who the server is")
}

// TestTurnsOf has the turns of pools of all sizes.
func TestTurnsOf(t *testing.T) {
	for size, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 10: 8, 20: 16, 100: 80} {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{PoolSize: size}))
		assert.Equal(t, want, cap(newTurns(client)), size)
	}
	client := redistest.Closing(t, redis.NewClient(&redis.Options{PoolSize: 100, MaxActiveConns: 10}))
	assert.Equal(t, 8, cap(newTurns(client)))
	assert.Nil(t, newTurns(struct{ redis.UniversalClient }{client}))
}

// TestNoTurn has a call wait for a turn until its timeout: it is blocked if the server
// has answered others meanwhile, and otherwise the server may be dead.
func TestNoTurn(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	require.NoError(t, err)
	defer mute.Close()
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: mute.Addr().String(), PoolSize: 10}))
	store := New(client, &Options{Timeout: 20 * time.Millisecond})
	server, _, err := store.serverOf(t.Context(), "")
	require.NoError(t, err)
	for range cap(server.turns) {
		server.turns <- struct{}{}
	}
	far := ticks() + time.Hour.Nanoseconds()
	for _, alive := range []bool{false, true} {
		server.failures.Store(0)
		server.answered.Store(map[bool]int64{true: far}[alive])
		var done sync.WaitGroup
		for range 2 * maxInFlight { // those in the batcher's queue too
			done.Go(func() {
				_, err := storetest.Take(context.Background(), store, "p", probing)
				assert.ErrorIs(t, err, core.ErrOutOfReach)
				assert.Equal(t, alive, isBlocked(err), err)
			})
		}
		done.Wait()
		idle(t, store.batcher(ask(probing)))
		assert.Equal(t, !alive, server.failures.Load() > 0)
	}
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, leave)
	_, err = storetest.Take(gone, store, "p", probing)
	assert.Equal(t, context.Canceled, err)
}

// TestPatience has a call leave time for the server: half, or less if that is usually fast.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attempt{server: &server{turns: make(chan struct{}, 1)}}
		a.turns <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.Equal(t, errNoTurn, a.enter(ctx))
		require.Equal(t, 50*time.Millisecond, time.Since(began))

		time.AfterFunc(24*time.Millisecond, func() { <-a.turns })
		require.NoError(t, a.enter(ctx), "a turn that comes in time")
		require.Equal(t, 74*time.Millisecond, time.Since(began))
		require.Len(t, a.turns, 1)
	})
	synctest.Test(t, func(t *testing.T) {
		a := attempt{server: &server{turns: make(chan struct{}, 2)}}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		a.exhausted.Store(ticks() + int64(exhaustedFor))
		require.Equal(t, errExhausted, a.enter(ctx))
		time.Sleep(exhaustedFor)
		require.NoError(t, a.enter(ctx), "one tries again")
		b := attempt{server: a.server}
		require.Equal(t, errExhausted, b.enter(ctx))
		a.replied(ticks())
		a.leave()
		require.NoError(t, b.enter(ctx))
	})
	synctest.Test(t, func(t *testing.T) {
		a := attempt{server: &server{turns: make(chan struct{}, 2)}}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		a.exhausted.Store(ticks())
		require.NoError(t, a.enter(ctx))
		<-ctx.Done()
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		b := attempt{server: a.server}
		require.Equal(t, errExhausted, b.enter(soon), "no second call tries when the first is about to say what it found")
	})
	var s server
	for latency, want := range map[time.Duration]time.Duration{0: 50, 100 * time.Microsecond: 89, 5 * time.Millisecond: 70, time.Second: 50} {
		s.latency.Store(int64(latency))
		assert.Equal(t, want, s.patience(100*time.Millisecond)/time.Millisecond, latency)
	}
}

func isBlocked(err error) bool {
	d, ok := diagnosis(err)
	return ok && d.Code == notice.NoConnection
}

// TestExhaustedPool has the program use all connections of the client. The store says
// so as long as Redis answers, and that Redis does not answer when it is paused.
func TestExhaustedPool(t *testing.T) {
	redistest.Real(t)
	server := redistest.Launch(t)
	for name, client := range map[string]*redis.Client{
		"client":                redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 4, ReadTimeout: time.Minute}),
		"client without limits": redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 4, ReadTimeout: -2, WriteTimeout: -2}),
	} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			store := New(client, &Options{Timeout: 300 * time.Millisecond})
			var held []*redis.Conn
			for range 4 {
				conn := client.Conn()
				require.NoError(t, conn.Ping(t.Context()).Err())
				held = append(held, conn)
			}
			redistest.Await(t, 10*time.Second, "a probe that is answered in time", func() bool {
				_, err := storetest.Take(t.Context(), store, "p", probing)
				require.ErrorIs(t, err, core.ErrOutOfReach)
				return isBlocked(err)
			})
			_, err := storetest.Take(t.Context(), store, "p", probing)
			assert.ErrorContains(t, err, "raise PoolSize in the options of the client, now 4")
			at, _, err := store.serverOf(t.Context(), "")
			require.NoError(t, err)
			assert.NotZero(t, at.exhausted.Load(), "other calls do not wait meanwhile")
			redistest.Await(t, 10*time.Second, "a check that blames the pool", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				return isBlocked(store.Check(ctx))
			})

			server.Pause()
			redistest.Await(t, 10*time.Second, "an error that does not blame the pool", func() bool {
				_, err := storetest.Take(t.Context(), store, "p", probing)
				require.ErrorIs(t, err, core.ErrOutOfReach)
				return !isBlocked(err)
			})
			server.Resume()
			for _, conn := range held {
				conn.Close()
			}
			redistest.Await(t, 10*time.Second, "a decision", func() bool {
				_, err := storetest.Take(t.Context(), store, "p", probing)
				return err == nil
			})
			assert.Zero(t, at.exhausted.Load())
		})
	}
}

// TestTurnAfterPanic has a hook panic while a call asks who the server is: the turn of
// the call ends all the same.
func TestTurnAfterPanic(t *testing.T) {
	direct := redistest.Real(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: direct.Options().Addr, PoolSize: 1, ContextTimeoutEnabled: true}))
	panics := true
	before(client, is("info"), func(redis.Cmder) {
		if panics {
			panics = false
			panic("no")
		}
	})
	store := New(client, &Options{Timeout: 10 * time.Second})
	assert.Panics(t, func() { _, _ = storetest.Take(t.Context(), store, "p", probing) })
	server, _ := store.knownServerOf("k")
	require.Empty(t, server.turns)
	_, err := storetest.Take(t.Context(), store, "p", probing)
	assert.NoError(t, err)
}
