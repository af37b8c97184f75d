package redisstore

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/guard"
	"github.com/routelimit/limit/internal/redistest"
)

// grown waits until the server is older than what its uptime may be wrong by.
func grown(t *testing.T, client *redis.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := client.Info(t.Context(), "server").Result()
		return err != nil || // it has none
			!strings.Contains(text, "uptime_in_seconds:0\r") && !strings.Contains(text, "uptime_in_seconds:1\r") && !strings.Contains(text, "uptime_in_seconds:2\r")
	}, 10*time.Second, 20*time.Millisecond)
}

// TestRestarted starts Redis anew, without its data, while nobody asks: the client
// redials without a word, and the store says so once, of each restart.
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
		require.ErrorIs(t, err, errRestarted)
	}
}

// TestGuardKnowsOfRestarts holds that with a guard, one process admits no more
// than its limit, however often Redis forgets all while nobody asks.
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

// TestRestartedUnderWay has calls under way when a restart is noticed: none of
// them is answered by the new server.
func TestRestartedUnderWay(t *testing.T) {
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
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 5, time.Hour)}
	_, err := store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	hold.Store(true)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			_, err := store.Take(t.Context(), "p", charges)
			assert.ErrorIs(t, err, errRestarted)
		})
	}
	<-arrived
	<-arrived
	server.Kill()
	server.Start()
	hold.Store(false)
	_, err = store.Take(t.Context(), "q", charges)
	require.ErrorIs(t, err, errRestarted)
	_, err = store.Take(t.Context(), "q", charges) // brings the script
	require.NoError(t, err)
	close(sent)
	group.Wait()
}

// TestFlushedIsNotRestarted flushes the scripts of a server, and takes the right
// to INFO away: neither is an error.
func TestFlushedIsNotRestarted(t *testing.T) {
	client := redistest.Real(t)
	grown(t, client)
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 5, time.Hour)}
	take := func() {
		t.Helper()
		_, err := store.Take(t.Context(), "p", charges)
		require.NoError(t, err)
	}
	take()
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	take()
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	take()
}
