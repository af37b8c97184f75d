package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
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
		d, err := store.Take(context.Background(), "p", peek)
		require.NoError(t, err)
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
						_, err := store.Take(t.Context(), "p", charges)
						return err == nil
					})
					end := begin(t, proxy, server)
					var longest atomic.Int64
					var done sync.WaitGroup
					before := runtime.NumGoroutine()
					for range callers {
						done.Go(func() {
							for range 4 {
								began := time.Now()
								_, err := store.Take(context.Background(), "p", charges)
								took := time.Since(began)
								assert.ErrorIs(t, err, core.ErrUnavailable)
								assert.NotErrorIs(t, err, context.DeadlineExceeded, "that of the caller has not passed")
								for l := longest.Load(); int64(took) > l && !longest.CompareAndSwap(l, int64(took)); l = longest.Load() {
								}
							}
						})
					}
					done.Wait()
					left := runtime.NumGoroutine() - before
					t.Logf("timeout %v: the longest of %d calls took %v; %d goroutines more", timeout, 4*callers, time.Duration(longest.Load()), left)
					assert.Less(t, time.Duration(longest.Load()), timeout+slack)
					assert.LessOrEqual(t, left, 64, "what was given up is bounded")

					end()
					redistest.Await(t, 10*time.Second, "a decision after the fault", func() bool {
						_, err := store.Take(t.Context(), "p", charges)
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
			_, err := store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
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
					_, err := store.Take(ctx, "p", charges)
					assert.Equal(t, context.DeadlineExceeded, err)
				})
			}
			done.Wait()
			close(answer)
			proxy.Break(nil)
			idle(t, store.batcher("p", charges))
			_, err = store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
		})
	}
}

// many is how many requests a test of counts makes: LIMIT_REQUESTS, or few.
func many() int {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_REQUESTS")); err == nil {
		return n
	}
	return 4000
}

// TestLostReplies loses the reply to every fifth call, and asks Redis how many
// requests it has counted.
func TestLostReplies(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	for name, client := range clients(t, proxy.Addr()) {
		for _, callers := range []int{1, 16} {
			t.Run(fmt.Sprint(name, "/", callers), func(t *testing.T) {
				require.NoError(t, direct.FlushDB(t.Context()).Err())
				charges, counted := counter(t, direct)
				store := New(client, &Options{Timeout: 10 * time.Second})
				proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
					if c.Name == "evalsha" && c.Number%5 == 0 {
						return faultproxy.Fault{Kind: faultproxy.LoseReply}
					}
					return faultproxy.Fault{}
				})
				defer proxy.Break(nil)
				var asked, decided, failed atomic.Int64
				var done sync.WaitGroup
				for range callers {
					done.Go(func() {
						for asked.Add(1) <= int64(many()) {
							if _, err := store.Take(context.Background(), "p", charges); err == nil {
								decided.Add(1)
							} else if errors.Is(err, core.ErrUnavailable) {
								failed.Add(1)
							} else {
								t.Error(err)
							}
						}
					})
				}
				done.Wait()
				n := counted()
				t.Logf("asked %d: decided %d, without an answer %d; Redis counted %d", many(), decided.Load(), failed.Load(), n)
				assert.Positive(t, failed.Load())
				assert.LessOrEqual(t, n, int64(many()), "no request counts twice")
				assert.GreaterOrEqual(t, n, decided.Load(), "each decision counts")
			})
		}
	}
}

// TestCutAtEveryByte ends the connection at each byte of a request and of its
// reply: a decision counts once or never, and what is decided is right.
func TestCutAtEveryByte(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer client.Close()
	store := New(client, &Options{Timeout: 10 * time.Second})
	charges, counted := counter(t, direct)
	_, err := store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	for _, kind := range []faultproxy.Kind{faultproxy.CutRequest, faultproxy.CutReply} {
		size, decided := 100, 0
		for at := 0; at <= size; at++ {
			armed := true
			proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
				if c.Name != "evalsha" || !armed {
					return faultproxy.Fault{}
				}
				armed = false
				if kind == faultproxy.CutRequest {
					size = c.Size
				}
				return faultproxy.Fault{Kind: kind, At: at}
			})
			before := counted()
			d, err := store.Take(t.Context(), "p", charges)
			after := counted()
			switch {
			case err == nil:
				decided++
				require.Equal(t, before+1, after)
				require.Equal(t, 1_000_000_000-after, d.Outcomes()[0].Remaining)
			case kind == faultproxy.CutRequest && at < size:
				require.ErrorIs(t, err, core.ErrUnavailable)
				require.Equal(t, before, after, "half a request takes nothing")
			default:
				require.ErrorIs(t, err, core.ErrUnavailable)
				require.LessOrEqual(t, after-before, int64(1))
			}
		}
		t.Logf("cut at each of %d bytes; %d decisions came through whole", size, decided)
	}
}

// TestSwappedReplies exchanges the replies of pairs of calls, of two policies,
// one of which has nothing left: no verdict is taken from the other.
func TestSwappedReplies(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer client.Close()
	stores := []*Store{New(client, &Options{Timeout: 10 * time.Second}), New(client, &Options{Timeout: 10 * time.Second})}
	full, empty := charge("r", "k", 1_000, time.Hour), charge("r", "k", 1_000, time.Hour)
	full.Cost, empty.Cost = 1, 1000
	_, err := stores[0].Take(t.Context(), "empty", []core.Charge{empty})
	require.NoError(t, err)
	empty.Cost, full.Cost = 1, 0
	for _, kind := range []faultproxy.Kind{faultproxy.SwapReply, faultproxy.DuplicateReply} {
		proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
			if c.Name == "evalsha" && (kind == faultproxy.SwapReply || c.Number%3 == 0) {
				return faultproxy.Fault{Kind: kind}
			}
			return faultproxy.Fault{}
		})
		var mixed, decided atomic.Int64
		rounds := max(200, many()/20)
		for range rounds {
			var done sync.WaitGroup
			for i, c := range []core.Charge{full, empty} {
				done.Go(func() {
					d, err := stores[i].Take(context.Background(), []string{"full", "empty"}[i], []core.Charge{c})
					switch {
					case errors.Is(err, errOtherCall):
						mixed.Add(1)
					case assert.NoError(t, err):
						decided.Add(1)
						assert.Equal(t, i == 0, d.Allowed)
					}
				})
			}
			done.Wait()
		}
		t.Logf("%d calls: %d replies were those to others and seen as such, %d decided", 2*rounds, mixed.Load(), decided.Load())
		if kind == faultproxy.SwapReply {
			assert.EqualValues(t, 2*rounds, mixed.Load())
		} else {
			assert.Positive(t, decided.Load())
		}
		proxy.Break(nil)
		proxy.Cut()
	}
}

// TestFlushedAllTheTime flushes the scripts every 10 ms while callers decide.
func TestFlushedAllTheTime(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &Options{Timeout: time.Minute})
	charges, counted := counter(t, client)
	var asked atomic.Int64
	var done sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				asked.Add(1)
				_, err := store.Take(context.Background(), "p", charges)
				assert.NoError(t, err)
			}
		})
	}
	flushes := max(30, many()/40)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range flushes {
		<-ticker.C
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
	}
	close(stop)
	done.Wait()
	t.Logf("%d flushes, %d decisions, no error", flushes, asked.Load())
	assert.Equal(t, asked.Load(), counted())
}
