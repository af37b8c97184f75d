package proof

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/redisstore"
)

// TestPartition cuts one of three instances off: it admits at most its share,
// and the others what Redis still has.
func TestPartition(t *testing.T) {
	server := redistest.Real(t).Options().Addr
	redis.SetLogger(quiet{})
	proxy := faultproxy.Start(t, server)
	var limiters []*limit.Limiter
	for _, addr := range []string{proxy.Addr(), server, server} {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		limiters = append(limiters, limit.New(redisstore.New(client, nil), &limit.Options{Instances: 3}))
	}
	require.NoError(t, proxy.Refuse(true))
	rules := limit.Named("few", limit.Global(time.Hour, 90))
	modes := make([]map[limit.Mode]int, 3)
	admitted := 0
	for range 200 {
		for i, l := range limiters {
			d, err := l.Take(t.Context(), rules, limit.Keys{})
			require.NoError(t, err)
			if modes[i] == nil {
				modes[i] = make(map[limit.Mode]int)
			}
			modes[i][d.Mode]++
			if d.Allowed {
				admitted++
			}
		}
	}
	t.Logf("one of three cut off: %d of 90 admitted, at most 120; modes %v", admitted, modes)
	require.Equal(t, 200, modes[0][limit.ModeLocal])
	require.GreaterOrEqual(t, admitted, 90)
	require.LessOrEqual(t, admitted, 90+30, "the limit, and the share of one")
}

// TestHotKey has 64 callers of one key, most of which are refused.
func TestHotKey(t *testing.T) {
	admin := redistest.Real(t)
	client := redis.NewClient(&redis.Options{Addr: admin.Options().Addr})
	defer client.Close()
	limiter := limit.New(redisstore.New(client, nil), nil)
	rules := limit.Named("hot", limit.Global(time.Hour, 1000))
	var asked, admitted, failed, local, remembered atomic.Int64
	rush := func() {
		asked.Store(0)
		var done sync.WaitGroup
		for range 64 {
			done.Go(func() {
				for asked.Add(1) <= 20_000 {
					d, err := limiter.Take(t.Context(), rules, limit.Keys{})
					switch {
					case err != nil:
						failed.Add(1)
					case d.Allowed:
						admitted.Add(1)
					}
					switch d.Mode {
					case limit.ModeLocal:
						local.Add(1)
					case limit.ModeRemembered:
						remembered.Add(1)
					}
				}
			})
		}
		done.Wait()
	}
	rush()
	require.LessOrEqual(t, admitted.Load(), int64(1000))
	if local.Load() == 0 { // or what timed out may have counted
		require.EqualValues(t, 1000, admitted.Load())
	}
	t.Logf("20,000 requests for one key: %d of 1000 admitted, %d failed, %d local", admitted.Load(), failed.Load(), local.Load())

	remembered.Store(0)
	before, start := scriptCalls(t, admin), time.Now()
	rush()
	calls, took := scriptCalls(t, admin)-before, time.Since(start)
	t.Logf("20,000 more, all refused: %d remembered, %d calls of Redis in %v", remembered.Load(), calls, took)
	require.Zero(t, failed.Load())
	require.LessOrEqual(t, admitted.Load(), int64(1000))
	require.LessOrEqual(t, calls, 64*(1+int(took/time.Second)), "each second a refusal is asked for again, by who comes meanwhile")
}

// scriptCalls returns how often the server was asked to run a script by its name.
func scriptCalls(t *testing.T, admin *redis.Client) (calls int) {
	for line := range strings.Lines(admin.Info(t.Context(), "commandstats").Val()) {
		if of, found := strings.CutPrefix(line, "cmdstat_evalsha:calls="); found {
			count, _, _ := strings.Cut(of, ",")
			calls, _ = strconv.Atoi(count)
		}
	}
	return calls
}

// TestObedient has 1000 clients that come at once to a rule of ten a second, and
// come again when they are told to. In a queue each is told a time of its own.
func TestObedient(t *testing.T) {
	const clients = 1000
	for _, algorithm := range []limit.Algorithm{limit.SlidingLog, limit.Queue} {
		t.Run(fmt.Sprint(algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := limit.New(nil, nil)
				rule := limit.Rule{Key: limit.Everyone, Limit: 10, Window: time.Second, Algorithm: algorithm}
				if algorithm == limit.Queue {
					rule.Burst = clients
				}
				rules := limit.Named("ten", rule)
				var mu sync.Mutex
				attempts, began := make(map[int64]int), time.Now()
				var done sync.WaitGroup
				for range clients {
					done.Go(func() {
						for {
							mu.Lock()
							attempts[int64(time.Since(began)/(100*time.Millisecond))]++
							mu.Unlock()
							d, err := limiter.Take(t.Context(), rules, limit.Keys{})
							if err != nil {
								t.Error(err)
								return
							}
							if d.Allowed {
								return
							}
							time.Sleep(d.RetryAfter)
						}
					})
				}
				done.Wait()
				sum, most := 0, 0
				for at, n := range attempts {
					sum += n
					if at > 0 {
						most = max(most, n)
					}
				}
				took := time.Since(began)
				t.Logf("%d clients were through after %v: %d attempts, %.1f for each; most in 100 ms after the first: %d",
					clients, took, sum, float64(sum)/clients, most)
				if algorithm == limit.Queue {
					require.Equal(t, clients, sum, "nobody comes twice")
				} else {
					require.LessOrEqual(t, took, clients/10*time.Second, "no turn is lost")
				}
			})
		})
	}
}
