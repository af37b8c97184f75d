package proof

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestNothingIsLeft uses everything that starts goroutines and timers (batches, clients
// that ignore deadlines, the guard, leases, waits), with a Redis that works and with one
// that never answers. It then checks that no goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	server := redistest.Real(t).Options().Addr
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	func() {
		proxy := faultproxy.Start(t, server)
		defer proxy.Refuse(true)
		clients := []redis.UniversalClient{
			redis.NewClient(&redis.Options{Addr: proxy.Addr()}),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{proxy.Addr()}, ReadTimeout: 200 * time.Millisecond,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: proxy.Addr()}}}}, nil
				}}),
		}
		for _, client := range clients {
			defer client.Close()
			limiter := limit.New(guard.New(redisstore.New(client, nil), nil), nil)
			held := bind(limiter, limit.Named("held", limit.Rule{Key: limit.Everyone, Limit: 100, Window: time.Second, Algorithm: limit.Concurrency{}},
				limit.Rule{Key: limit.ByUser, Limit: 100, Window: time.Second, Algorithm: limit.Queue{Burst: 5}}))
			for _, silent := range []bool{false, true, false} {
				proxy.Silence(silent)
				done := make(chan struct{})
				for range 16 {
					go func() {
						defer func() { done <- struct{}{} }()
						for range 5 {
							ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
							d, err := held.Take(ctx, limit.Request{Keys: map[string]string{"user": "a"}})
							if err == nil && d.Allowed {
								_ = d.Wait(ctx)
							}
							d.Release()
							cancel()
						}
					}()
				}
				for range 16 {
					<-done
				}
			}
			_, err := held.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "b"}})
			require.NotErrorIs(t, err, core.ErrUnavailable)
			redistest.Await(t, 10*time.Second, "a Redis that answers in time", func() bool {
				return held.Reset(context.Background(), map[string]string{"user": "a"}) == nil
			})
		}
	}()
}
