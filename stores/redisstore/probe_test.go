package redisstore

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestConnectionRefused holds that a call ends when its server refuses connections,
// and not when the client has dialed as often as its options say.
func TestConnectionRefused(t *testing.T) {
	redistest.Real(t)
	const dials = 1000 // 100 ms apart
	for name, row := range map[string]struct {
		args   []string
		client func(addr string) redis.UniversalClient
	}{
		"Client": {client: func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, DialerRetries: dials})
		}},
		"Client with deadlines": {client: func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, DialerRetries: dials, ContextTimeoutEnabled: true})
		}},
		"ClusterClient": {args: []string{"--cluster-enabled", "yes"}, client: func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, DialerRetries: dials})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Launch(t, row.args...)
			if row.args != nil {
				require.NoError(t, server.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
				redistest.Await(t, 10*time.Second, "a Cluster of one", func() bool {
					return server.Client().Set(t.Context(), "a", "b", 0).Err() == nil
				})
			}
			client := row.client(server.Addr)
			defer client.Close()
			store := New(client, &patient)
			storetest.MustTake(t, store, probing...)
			server.Kill()
			for range 3 {
				_, err := storetest.Take(t.Context(), store, "p", probing)
				require.ErrorIs(t, err, core.ErrUnavailable)
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
			}

			server.Restart()
			if row.args == nil {
				redistest.Await(t, 10*time.Second, "an answer", func() bool {
					_, err := storetest.Take(t.Context(), store, "p", probing)
					return err == nil
				})
			}
		})
	}
}

var probing = []core.Charge{{Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Limit: 1000, Window: 60_000_000}}}

// TestProbesOfSlowServer holds that calls to a slow server go on, and share its
// probes.
func TestProbesOfSlowServer(t *testing.T) {
	server := redistest.Real(t).Options().Addr
	proxy := faultproxy.Start(t, server)
	var dials atomic.Int64
	var dialer net.Dialer
	client := redistest.Closing(t, redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), PoolSize: 2,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dialer.DialContext(ctx, network, addr)
		},
	}))
	store := New(client, &patient)
	proxy.Break(faultproxy.On(faultproxy.Fault{Delay: 3 * probeAfter}))
	start := time.Now()
	for range 20 {
		storetest.MustTake(t, store, probing...)
	}
	seconds := int64(time.Since(start)/probeEvery) + 1
	require.Greater(t, dials.Load(), int64(1), "there was no probe")
	require.LessOrEqual(t, dials.Load(), 2+seconds, "connections of the pool, and a probe a second")
}

// TestSecondProbe holds that a call ends if its server accepts the first probe and
// refuses the second one.
func TestSecondProbe(t *testing.T) {
	var dials atomic.Int64
	client := redistest.Closing(t, redis.NewClient(&redis.Options{
		DialerRetryBackoff: func(int) time.Duration { return time.Hour },
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if dials.Add(1) == 2 { // the first probe
				conn, _ := net.Pipe()
				return conn, nil
			}
			return nil, syscall.ECONNREFUSED
		},
	}))
	_, err := storetest.Take(t.Context(), New(client, &patient), "p", probing)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.EqualValues(t, 3, dials.Load())
}

// TestProbeWithPanic holds that a panic of the program's dialer is recovered.
func TestProbeWithPanic(t *testing.T) {
	k := &inquiry{done: make(chan struct{})}
	new(server).dial(k, &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { panic("no") }}, time.Second)
	<-k.done
	require.NoError(t, k.err)
}

// TestProbeEnds has a server that accepts connections, and never answers. Calls may wait
// for an hour, but a probe ends when the next one may begin.
func TestProbeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		began := time.Now()
		new(server).dial(&inquiry{done: make(chan struct{})}, &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}, time.Hour)
		require.Equal(t, probeEvery, time.Since(began))
	})
}
