package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/guard"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
)

// TestRestarted restarts Redis without its data between two calls. The client redials
// without an error, and the store reports each restart once.
func TestRestarted(t *testing.T) {
	server := redistest.NewMortal(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 5, time.Hour)}
	for range 3 {
		for want := range int64(3) {
			d, err := store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			require.Equal(t, 4-want, d.Outcomes()[0].Remaining)
		}
		server.Kill()
		server.Start()
		_, err := store.Take(t.Context(), "p", charges)
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.ErrorIs(t, err, errForgotten)
	}
}

// TestGuardKnowsOfRestarts holds that with a guard, one process admits no more
// than its limit, however often Redis loses its data between two calls.
func TestGuardKnowsOfRestarts(t *testing.T) {
	server := redistest.NewMortal(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	store := guard.New(New(client, &patient), nil)
	charges := []core.Charge{charge("r", "k", 10, time.Hour)}
	admitted := 0
	for range 4 {
		for range 4 {
			d, err := store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
		}
		server.Kill()
		server.Start()
	}
	assert.Equal(t, 10, admitted)
}

// TestRestartedInFlight has calls in flight when a restart is noticed: none of
// them is answered by the new server.
func TestRestartedInFlight(t *testing.T) {
	server := redistest.NewMortal(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	arrived, sent := make(chan struct{}, 2), make(chan struct{})
	var hold atomic.Bool
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if hold.Load() && cmd.Name() == "evalsha" {
			arrived <- struct{}{}
			<-sent
		}
		return next(ctx, cmd)
	}))
	store := New(unprobed{client}, &patient)
	charges := []core.Charge{charge("r", "k", 5, time.Hour)}
	_, err := store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	hold.Store(true)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			_, err := store.Take(t.Context(), "p", charges)
			assert.ErrorIs(t, err, errForgotten)
		})
	}
	<-arrived
	<-arrived
	server.Kill()
	server.Start()
	hold.Store(false)
	_, err = store.Take(t.Context(), "q", charges)
	require.ErrorIs(t, err, errForgotten)
	_, err = store.Take(t.Context(), "q", charges) // brings the script
	require.NoError(t, err)
	close(sent)
	group.Wait()
}

// TestScriptFlushIsNoRestart flushes the scripts of a server: that is no error.
func TestScriptFlushIsNoRestart(t *testing.T) {
	client := redistest.Real(t)
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 5, time.Hour)}
	for range 2 {
		_, err := store.Take(t.Context(), "p", charges)
		require.NoError(t, err)
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
	}
}

// An unprobed client is of a type that the store does not probe for, so that calls
// stay in flight while their server refuses connections.
type unprobed struct{ redis.UniversalClient }

// TestServerAfterFailure has two processes on a server that is restarted while
// calls of both fail. One of them loads the script again; the other one must notice
// the restart all the same.
func TestServerAfterFailure(t *testing.T) {
	server := redistest.NewMortal(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	stores := []*Store{New(client, &patient), New(client, &patient)}
	each := func(want error) {
		t.Helper()
		for _, store := range stores {
			_, err := store.Take(t.Context(), "p", charges)
			require.ErrorIs(t, err, want)
		}
	}
	each(nil)
	for range 3 {
		server.Kill()
		each(core.ErrOutOfReach)
		server.Start()
		each(core.ErrForgotten)
		each(nil)
	}
}

// TestServerAnswersBesideAFailure has a call in flight when another one fails. It
// arrives at a restarted server that knows the script already.
func TestServerAnswersBesideAFailure(t *testing.T) {
	server := redistest.NewMortal(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	other := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	defer other.Close()
	arrived, sent := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "evalsha" && hold.CompareAndSwap(true, false) {
			close(arrived)
			<-sent
		}
		return next(ctx, cmd)
	}))
	store := New(unprobed{client}, &patient)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	_, err := store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	hold.Store(true)
	done := make(chan error)
	go func() {
		_, err := store.Take(t.Context(), "p", charges)
		done <- err
	}()
	<-arrived
	server.Kill()
	_, err = store.Take(t.Context(), "q", charges)
	require.ErrorIs(t, err, core.ErrOutOfReach)
	server.Start()
	_, err = New(other, &patient).Take(t.Context(), "p", charges)
	require.NoError(t, err)
	close(sent)
	require.ErrorIs(t, <-done, core.ErrForgotten)
}

// TestServerIsTheSame holds that a lost reply of a server that was not restarted
// fails one call, and makes the next one read the identity.
func TestServerIsTheSame(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	var asked atomic.Int64
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "info" {
			asked.Add(1)
		}
		return next(ctx, cmd)
	}))
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	for i := range int64(3) {
		for range 3 {
			_, err := store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			require.Equal(t, i+1, asked.Load())
		}
		proxy.Break(func(faultproxy.Command) faultproxy.Fault { return faultproxy.Fault{Kind: faultproxy.CutReply} })
		_, err := store.Take(t.Context(), "p", charges)
		require.ErrorIs(t, err, core.ErrOutOfReach)
		proxy.Break(nil)
	}
}

// TestServerFarAway has a server that answers one question within the timeout, but
// not two. A failure must not keep the store from it for ever.
func TestServerFarAway(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	store := New(client, &Options{Timeout: time.Second})
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	take := func() error {
		_, err := store.Take(t.Context(), "p", charges)
		return err
	}
	require.NoError(t, take())
	proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if c.Name == "evalsha" || c.Name == "info" {
			return faultproxy.Fault{Delay: 600 * time.Millisecond}
		}
		return faultproxy.Fault{}
	})
	require.NoError(t, take())
	known, _, err := store.serverOf(t.Context(), "")
	require.NoError(t, err)
	store.failed(known)
	require.ErrorIs(t, take(), core.ErrOutOfReach)
	require.NoError(t, take())
}

// TestFirstCallAfterFailure holds that a server which is called for the first time
// after a failed call counts as another one: it may have replaced the one that failed.
func TestFirstCallAfterFailure(t *testing.T) {
	store := New(redistest.Real(t), &patient)
	store.failed(nil)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	_, err := store.Take(t.Context(), "p", charges)
	require.ErrorIs(t, err, core.ErrForgotten)
	_, err = store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
}

// TestRestartBetweenCalls has two processes on a server that is restarted while
// neither calls it. One finds the script gone, and loads it; the other one can
// notice the restart only by its new connection.
func TestRestartBetweenCalls(t *testing.T) {
	server := redistest.NewMortal(t)
	charges := []core.Charge{charge("r", "k", 100_000, time.Hour)}
	var stores []*Store
	for range 2 {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
		defer client.Close()
		stores = append(stores, New(client, &patient))
	}
	take := func(i int) error {
		_, err := stores[i].Take(t.Context(), "p", charges)
		return err
	}
	require.NoError(t, take(0))
	require.NoError(t, take(1))
	for range 3 {
		server.Kill()
		server.Start()
		require.ErrorIs(t, take(0), core.ErrForgotten)
		require.NoError(t, take(0))
		redistest.Await(t, 10*time.Second, "a report of the restart", func() bool {
			err := take(1)
			if err != nil {
				require.ErrorIs(t, err, core.ErrForgotten)
			}
			return err != nil
		})
		require.NoError(t, take(1))
	}
}

// TestReconnect holds that the client's reconnection to the same server makes the
// store read its identity, and nothing else.
func TestReconnect(t *testing.T) {
	direct := redistest.Real(t)
	client := redis.NewClient(&redis.Options{Addr: direct.Options().Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	var asked atomic.Int64
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if cmd.Name() == "info" {
			asked.Add(1)
		}
		return err
	}))
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 100_000, time.Hour)}
	take := func() {
		_, err := store.Take(t.Context(), "p", charges)
		require.NoError(t, err)
	}
	take()
	for i := range int64(3) {
		require.Equal(t, 1+i, asked.Load())
		require.NoError(t, direct.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
		redistest.Await(t, 10*time.Second, "a question", func() bool {
			take()
			return asked.Load() > 1+i
		})
		known, _, err := store.serverOf(t.Context(), "")
		require.NoError(t, err)
		redistest.Await(t, 10*time.Second, "its answer", func() bool { return !known.checking.Load() })
		for range 10 {
			take()
		}
	}
}

// TestRestartWithoutCaller has a restart found by a call whose caller has left, and by
// a call that is no Take: the next Take reports it.
func TestRestartWithoutCaller(t *testing.T) {
	client := redistest.Real(t)
	var leave context.CancelFunc
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if cmd.Name() == "info" && leave != nil {
			leave()
		}
		return err
	}))
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	take := func(ctx context.Context) error {
		_, err := store.Take(ctx, "p", charges)
		return err
	}
	require.NoError(t, take(t.Context()))
	for name, find := range map[string]func() error{
		"a caller that has left": func() (err error) {
			var ctx context.Context
			ctx, leave = context.WithCancel(t.Context())
			err, leave = take(ctx), nil
			return err
		},
		"a Reset": func() error { return store.Reset(t.Context(), "p", "r", "other") },
	} {
		known, _, err := store.serverOf(t.Context(), "")
		require.NoError(t, err)
		known.mu.Lock()
		known.identity = "of another start"
		known.mu.Unlock()
		known.failures.Add(1)
		require.Error(t, find(), name)
		require.ErrorIs(t, take(t.Context()), core.ErrForgotten, name)
		require.NoError(t, take(t.Context()), name)
	}
}

func TestWorst(t *testing.T) {
	value := errors.New("of a client")
	for _, errs := range [][]error{
		{nil, core.ErrOutOfReach},
		{nil, value},
		{core.ErrForgotten, value},
	} {
		require.Equal(t, errs[1], worst([]error{errs[0], errs[1]}))
		require.Equal(t, errs[1], worst([]error{errs[1], errs[0]}))
	}
	require.NoError(t, worst([]error{nil, nil}))
}
