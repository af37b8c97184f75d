package redisstore

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// clusterOf returns a client of a Cluster, with go-redis's defaults, that takes
// one server for all of it.
func clusterOf(addr string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}})
}

// clients returns the kinds of clients that behave differently when the server
// at addr fails, with the defaults of go-redis but for the size of the pool.
func clients(t testing.TB, addr string) map[string]redis.UniversalClient {
	cluster := clusterOf(addr)
	cluster.Options().PoolSize = 4
	all := map[string]redis.UniversalClient{
		"client":                redis.NewClient(&redis.Options{Addr: addr, PoolSize: 4}),
		"client without limits": redis.NewClient(&redis.Options{Addr: addr, PoolSize: 4, ReadTimeout: -2, WriteTimeout: -2}),
		"cluster client":        cluster,
	}
	t.Cleanup(func() {
		for _, client := range all {
			client.Close()
		}
	})
	return all
}

// counter returns charges of a rule that never refuses, and how many units
// Redis has of it.
func counter(t testing.TB, direct redis.UniversalClient) (charges []core.Charge, counted func() int64) {
	charges = []core.Charge{{Rule: "count", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1_000_000_000, Window: time.Hour.Microseconds()}}}
	store := New(direct, &Options{Timeout: time.Minute})
	return charges, func() int64 {
		peek := []core.Charge{charges[0]}
		peek[0].Cost = 0
		d := must.Get(storetest.Take(context.Background(), store, "p", peek))(t)
		return 1_000_000_000 - d.Outcomes()[0].Remaining
	}
}

// TestEveryCallEndsInTime holds calls against servers that refuse, that never
// answer, that stand still, and against a pool with nothing left in it.
func TestEveryCallEndsInTime(t *testing.T) {
	redistest.Real(t)
	const timeout = 50 * time.Millisecond
	faults := map[string]func(*testing.T, *faultproxy.Proxy, *redistest.Server) (end func()){
		"refused": func(t *testing.T, p *faultproxy.Proxy, _ *redistest.Server) func() {
			require.NoError(t, p.Refuse(true))
			return func() { require.NoError(t, p.Refuse(false)) }
		},
		"black hole": func(_ *testing.T, p *faultproxy.Proxy, _ *redistest.Server) func() {
			p.Silence(true)
			return func() { p.Silence(false); p.Cut() }
		},
		"paused": func(_ *testing.T, _ *faultproxy.Proxy, s *redistest.Server) func() {
			s.Pause()
			return s.Resume
		},
	}
	for fault, begin := range faults {
		server := redistest.Launch(t)
		proxy := faultproxy.Start(t, server.Addr)
		for name, client := range clients(t, proxy.Addr()) {
			for _, callers := range []int{1, 64} { // more than the pool has connections
				t.Run(fmt.Sprint(fault, "/", name, "/", callers), func(t *testing.T) {
					store := New(client, &Options{Timeout: timeout})
					charges, _ := counter(t, server.Client())
					redistest.Await(t, 10*time.Second, "a first decision", func() bool {
						_, err := storetest.Take(t.Context(), store, "p", charges)
						return err == nil
					})
					end := begin(t, proxy, server)
					var longest, latest atomic.Int64
					most := func(of *atomic.Int64, took time.Duration) {
						for l := of.Load(); int64(took) > l && !of.CompareAndSwap(l, int64(took)); l = of.Load() {
						}
					}
					over, control := make(chan struct{}), make(chan struct{})
					go func() { // how late the machine is, for a sleep of the same time
						defer close(control)
						for ended := false; !ended; {
							began := time.Now()
							select {
							case <-over:
								ended = true
							case <-time.After(timeout):
								most(&latest, time.Since(began)-timeout)
							}
						}
					}()
					var done sync.WaitGroup
					before := runtime.NumGoroutine()
					for range callers {
						done.Go(func() {
							for range 4 {
								began := time.Now()
								_, err := storetest.Take(context.Background(), store, "p", charges)
								took := time.Since(began)
								assert.ErrorIs(t, err, core.ErrUnavailable)
								assert.NotErrorIs(t, err, context.DeadlineExceeded, "that of the caller has not passed")
								most(&longest, took)
							}
						})
					}
					done.Wait()
					close(over)
					<-control
					left, late := runtime.NumGoroutine()-before, time.Duration(latest.Load())
					t.Logf("timeout %v: the longest of %d calls took %v, and a sleep %v more; %d goroutines more", timeout, 4*callers, time.Duration(longest.Load()), late, left)
					assert.Less(t, time.Duration(longest.Load()), timeout+slack+3*late)
					assert.LessOrEqual(t, left, 64, "what was given up is bounded")

					end()
					redistest.Await(t, 10*time.Second, "a decision after the fault", func() bool {
						_, err := storetest.Take(t.Context(), store, "p", charges)
						return err == nil
					})
				})
			}
		}
	}
}

// slack is what a loaded machine may add to a time; LIMIT_SLACK changes it.
var slack = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("LIMIT_SLACK")); err == nil {
		return d
	}
	return 250 * time.Millisecond
}()

// TestLeavingEarly has callers leave before the timeout of the store, with the
// error of their own context, while others stay.
func TestLeavingEarly(t *testing.T) {
	server := redistest.Real(t).Options().Addr
	proxy := faultproxy.Start(t, server)
	for name, client := range clients(t, proxy.Addr()) {
		t.Run(name, func(t *testing.T) {
			store := New(client, &Options{Timeout: time.Minute})
			charges, _ := counter(t, store.client)
			storetest.MustTake(t, store, charges...)
			answer := make(chan struct{})
			proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
				if c.Name == "evalsha" {
					<-answer
				}
				return faultproxy.Fault{}
			})
			var done sync.WaitGroup
			for range 2 { // go alone
				done.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
					defer cancel()
					_, err := storetest.Take(ctx, store, "p", charges)
					assert.Equal(t, context.DeadlineExceeded, err)
				})
			}
			done.Wait()
			close(answer)
			proxy.Break(nil)
			idle(t, store.batcher(ask(charges)))
			storetest.MustTake(t, store, charges...)
		})
	}
}
