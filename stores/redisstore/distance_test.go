package redisstore

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestDistance has a server be so far away that a call on a new connection takes longer than the
// default timeout, and then close.
func TestDistance(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { client.Close() })
	store := New(client, &Options{Prefix: t.Name()})
	charges := []core.Charge{{Rule: "r", Key: "k", Quota: core.Quota{Limit: 100_000, Window: 3600_000_000}, Cost: 1}}
	take := func() error {
		_, err := storetest.Take(t.Context(), store, "p", charges)
		return err
	}
	proxy.Break(faultproxy.On(faultproxy.Fault{Delay: 30 * time.Millisecond}))
	require.Error(t, take(), "it is not known yet how far away the server is")
	for end := time.Now().Add(time.Minute); take() != nil; {
		require.True(t, time.Now().Before(end), "no call succeeds")
	}
	require.Equal(t, farInFlight, store.inFlight())
	for end := time.Now().Add(time.Minute); store.timeout() == defaultTimeout; _ = take() {
		require.True(t, time.Now().Before(end), "the timeout stays at %v", store.timeout())
	}
	require.LessOrEqual(t, store.timeout(), store.longest())
	proxy.Break(nil)
	for end := time.Now().Add(time.Minute); store.timeout() != defaultTimeout || store.inFlight() != maxInFlight; _ = take() {
		require.True(t, time.Now().Before(end), "the timeout stays at %v", store.timeout())
	}
}

// TestDistanceOfCluster has a distant server leave a Cluster.
func TestDistanceOfCluster(t *testing.T) {
	store := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), nil)
	near, distant := &server{}, &server{}
	store.servers.Store("near", near)
	store.servers.Store("distant", distant)
	distant.answered.Store(ticks())
	store.measured(distant, 60*time.Millisecond)
	store.measured(near, time.Millisecond)
	require.Equal(t, 360*time.Millisecond, store.timeout())
	distant.answered.Store(ticks() - int64(time.Minute))
	store.measured(near, time.Millisecond)
	require.Equal(t, defaultTimeout, store.timeout())
}

// TestDistantIsAskedApart has a server hang. The question of a second, how far away it is, does not
// stand where checks wait for each other.
func TestDistantIsAskedApart(t *testing.T) {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}))
	s := New(client, nil)
	redistest.Await(t, 20*time.Second, "the question", func() bool {
		_, err := core.Take(t.Context(), s, []core.Charge{{Policy: "p", Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: 1_000_000}, Cost: 1}})
		require.ErrorIs(t, err, core.ErrUnavailable)
		known, _ := s.knownServerOf("")
		return known.reaching.Load() != nil
	})
}
