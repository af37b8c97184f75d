package redisstore

import (
	"context"
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

// TestRestartedInFlight has calls in flight when a restart is noticed: none of
// them is answered by the new server.
func TestRestartedInFlight(t *testing.T) {
	server := redistest.Launch(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}))
	arrived, sent := make(chan struct{}, 2), make(chan struct{})
	var hold atomic.Bool
	before(client, is("evalsha"), func(redis.Cmder) {
		if hold.Load() {
			arrived <- struct{}{}
			<-sent
		}
	})
	store := New(unprobed{client}, &patient)
	charges := []core.Charge{charge("r", "k", 5, time.Hour)}
	storetest.MustTake(t, store, charges...)
	hold.Store(true)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			_, err := storetest.Take(t.Context(), store, "p", charges)
			assert.ErrorIs(t, err, errForgotten)
		})
		<-arrived // so that the next one goes alone
	}
	server.Kill()
	server.Restart()
	hold.Store(false)
	_, err := storetest.Take(t.Context(), store, "q", charges)
	require.ErrorIs(t, err, errForgotten)
	_, err = storetest.Take(t.Context(), store, "q", charges) // brings the script
	require.NoError(t, err)
	close(sent)
	group.Wait()
}

// TestRestartBetweenCalls has two processes on a server that is restarted while
// neither calls it. One finds the script gone, and loads it; the other one can
// notice the restart only by its new connection. Both must report it, also if their
// user may not run INFO.
func TestRestartBetweenCalls(t *testing.T) {
	for name, withheld := range map[string][]string{"with INFO": nil, "without INFO": {"info"}} {
		t.Run(name, func(t *testing.T) { testRestartBetweenCalls(t, redistest.Launch(t, user(withheld...)...)) })
	}
}

func testRestartBetweenCalls(t *testing.T, server *redistest.Server) {
	charges := []core.Charge{charge("r", "k", 100_000, time.Hour)}
	stores := []*Store{New(asUser(t, server.Addr), &patient), New(asUser(t, server.Addr), &patient)}
	take := func(i int) error {
		_, err := storetest.Take(t.Context(), stores[i], "p", charges)
		return err
	}
	require.NoError(t, take(0))
	require.NoError(t, take(1))
	for range 3 {
		server.Restart()
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
		_, err := storetest.Take(ctx, store, "p", charges)
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
		"a Reset": func() error { return storetest.Reset(t.Context(), store, "p", "r", "other") },
	} {
		known, _, err := store.serverOf(t.Context(), "")
		require.NoError(t, err)
		known.mu.Lock()
		known.run = "of another start"
		known.mu.Unlock()
		known.failures.Add(1)
		require.Error(t, find(), name)
		require.ErrorIs(t, take(t.Context()), core.ErrForgotten, name)
		require.NoError(t, take(t.Context()), name)
	}
}
