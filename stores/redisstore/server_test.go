package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// An unprobed client is of a type that the store does not probe for, so that calls
// stay in flight while their server refuses connections.
type unprobed struct{ redis.UniversalClient }

// TestServerAfterFailure has two processes on a server that is restarted while
// calls of both fail. One of them loads the script again; the other one must notice
// the restart all the same.
func TestServerAfterFailure(t *testing.T) {
	server := redistest.Launch(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}))
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	stores := []*Store{New(client, &patient), New(client, &patient)}
	each := func(want error) {
		t.Helper()
		for _, store := range stores {
			_, err := storetest.Take(t.Context(), store, "p", charges)
			require.ErrorIs(t, err, want)
		}
	}
	each(nil)
	for range 3 {
		server.Kill()
		each(core.ErrOutOfReach)
		server.Restart()
		each(core.ErrForgotten)
		each(nil)
	}
}

// TestServerAnswersBesideAFailure has a call in flight when another one fails. It
// arrives at a restarted server that knows the script already.
func TestServerAnswersBesideAFailure(t *testing.T) {
	server := redistest.Launch(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	other := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	defer other.Close()
	arrived, sent := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	before(client, is("evalsha"), func(redis.Cmder) {
		if hold.CompareAndSwap(true, false) {
			close(arrived)
			<-sent
		}
	})
	store := New(unprobed{client}, &patient)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	storetest.MustTake(t, store, charges...)
	hold.Store(true)
	done := make(chan error)
	go func() {
		_, err := storetest.Take(t.Context(), store, "p", charges)
		done <- err
	}()
	<-arrived
	server.Kill()
	_, err := storetest.Take(t.Context(), store, "q", charges)
	require.ErrorIs(t, err, core.ErrOutOfReach)
	server.Restart()
	storetest.MustTake(t, New(other, &patient), charges...)
	close(sent)
	require.ErrorIs(t, <-done, core.ErrForgotten)
}

// recent waits for a check of a server, and has it be recent for an hour: however slow the
// machine is, the next calls begin none because of their age.
func recent(t *testing.T, store *Store) *server {
	t.Helper()
	known, _, err := store.serverOf(t.Context(), "")
	require.NoError(t, err)
	known.asked.Store(ticks() + int64(time.Hour))
	redistest.Await(t, 10*time.Second, "a check", func() bool { return known.identifying.Load() == nil })
	return known
}

// TestServerIsTheSame holds that a lost reply of a server that was not restarted
// fails one call, and makes the next one read the identity.
func TestServerIsTheSame(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true}))
	var asked atomic.Int64
	before(client, is("info"), func(redis.Cmder) { asked.Add(1) })
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	for i := range int64(3) {
		for range 3 {
			recent(t, store)
			storetest.MustTake(t, store, charges...)
			require.Equal(t, i+1, asked.Load())
		}
		proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.CutReply}))
		_, err := storetest.Take(t.Context(), store, "p", charges)
		require.ErrorIs(t, err, core.ErrOutOfReach)
		proxy.Break(nil)
	}
}

// TestServerFarAway has a server that answers one question within the timeout, but
// not two. A failure must not keep the store from it forever.
func TestServerFarAway(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true}))
	store := New(client, &Options{Timeout: time.Second})
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	take := func() error {
		_, err := storetest.Take(t.Context(), store, "p", charges)
		return err
	}
	require.NoError(t, take())
	proxy.Break(faultproxy.On(faultproxy.Fault{Delay: 600 * time.Millisecond}, "evalsha", "info"))
	require.NoError(t, take())
	known, _, err := store.serverOf(t.Context(), "")
	require.NoError(t, err)
	store.failed(known)
	require.ErrorIs(t, take(), core.ErrOutOfReach)
	require.NoError(t, take())
}

// TestFirstCallAfterFailure holds that a server which is called for the first time
// after a failed call counts as another one: it may have replaced the one that failed. The first
// server of a process replaces none, though calls to it failed, or were given up, before.
func TestFirstCallAfterFailure(t *testing.T) {
	store := New(redistest.Real(t), &patient)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	first, _, err := store.serverOf(t.Context(), "")
	require.NoError(t, err)
	store.failed(nil)
	store.failed(first)
	storetest.MustTake(t, store, charges...)

	store.failed(&server{}) // of a Cluster, where slots have moved to it before it was called
	store.servers.Clear()
	_, err = storetest.Take(t.Context(), store, "p", charges)
	require.ErrorIs(t, err, core.ErrForgotten)
	storetest.MustTake(t, store, charges...)
}

// TestReconnect holds that the client's reconnection to the same server makes the
// store read its identity, and nothing else.
func TestReconnect(t *testing.T) {
	direct := redistest.Real(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: direct.Options().Addr, ContextTimeoutEnabled: true}))
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
		recent(t, store)
		storetest.MustTake(t, store, charges...)
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
		redistest.Await(t, 10*time.Second, "its answer", func() bool { return known.identifying.Load() == nil })
		for range 10 {
			take()
		}
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
