package proof

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestPartition cuts off one of three instances. It admits at most its share, and the
// others admit what is left in Redis.
func TestPartition(t *testing.T) {
	server := redistest.Real(t).Options().Addr
	proxy := faultproxy.Start(t, server)
	rules := limit.Named("few", limit.Global(time.Hour, 90))
	var policies []*limit.Policy
	for _, addr := range []string{proxy.Addr(), server, server} {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr}))
		policies = append(policies, bind(limit.New(redisstore.New(client, nil), &limit.Options{Instances: 3}), rules))
	}
	require.NoError(t, proxy.Refuse(true))
	modes := make([]map[core.Mode]int, 3)
	admitted := 0
	for range 200 {
		for i, p := range policies {
			d := must.Get(p.Take(t.Context(), limit.Request{}))(t)
			if modes[i] == nil {
				modes[i] = make(map[core.Mode]int)
			}
			modes[i][d.Mode]++
			if d.Allowed {
				admitted++
			}
		}
	}
	t.Logf("one of three cut off: %d of 90 admitted, at most 120; modes %v", admitted, modes)
	require.Equal(t, 200, modes[0][core.ModeLocal])
	require.GreaterOrEqual(t, admitted, 90)
	require.LessOrEqual(t, admitted, 90+30, "the limit, and the share of one")
}

// TestHotKey runs 64 callers of one key. Most requests are refused.
func TestHotKey(t *testing.T) {
	admin := redistest.Real(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: admin.Options().Addr}))
	policy := bind(limit.New(unhurried(client, 1), nil), limit.Named("hot", limit.Global(time.Hour, 1000)))
	var asked, admitted, failed, local, remembered atomic.Int64
	rush := func() {
		asked.Store(0)
		var done sync.WaitGroup
		for range 64 {
			done.Go(func() {
				for asked.Add(1) <= 20_000 {
					d, err := policy.Take(t.Context(), limit.Request{})
					switch {
					case err != nil:
						failed.Add(1)
					case d.Allowed:
						admitted.Add(1)
					}
					switch d.Mode {
					case core.ModeLocal:
						local.Add(1)
					case core.ModeRemembered:
						remembered.Add(1)
					}
				}
			})
		}
		done.Wait()
	}
	rush()
	require.EqualValues(t, 1000, admitted.Load())
	t.Logf("20,000 requests for one key: %d of 1000 admitted, %d failed, %d local", admitted.Load(), failed.Load(), local.Load())

	remembered.Store(0)
	before, start := scriptCalls(t, admin), time.Now()
	rush()
	calls, took := scriptCalls(t, admin)-before, time.Since(start)
	t.Logf("20,000 more, all refused: %d remembered, %d calls of Redis in %v", remembered.Load(), calls, took)
	require.Zero(t, failed.Load())
	require.LessOrEqual(t, admitted.Load(), int64(1000))
	require.LessOrEqual(t, calls, 64*(1+int(took/time.Second)), "once a second, every caller in between asks again")
}

// scriptCalls returns how often the server ran a script by its hash.
func scriptCalls(t *testing.T, admin *redis.Client) (calls int) {
	for line := range strings.Lines(admin.Info(t.Context(), "commandstats").Val()) {
		if of, found := strings.CutPrefix(line, "cmdstat_evalsha:calls="); found {
			count, _, _ := strings.Cut(of, ",")
			calls, _ = strconv.Atoi(count)
		}
	}
	return calls
}

// TestObedient starts 1,000 clients at once under a rule of ten requests a second. Each
// waits as long as its Retry-After says. A queue gives each client its own time;
// without one, jitter spreads clients with the same time.
func TestObedient(t *testing.T) {
	const clients = 1000
	for _, test := range []struct {
		name      string
		algorithm rules.Algorithm
		jitter    time.Duration
	}{
		{"sliding log", rules.SlidingLog{}, 0},
		{"jitter of 10 s", rules.SlidingLog{}, 10 * time.Second},
		{"jitter of 100 s", rules.SlidingLog{}, 100 * time.Second},
		{"queue", limit.Queue{Burst: clients}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rule := limit.Rule{Key: limit.Everyone, Limit: 10, Window: time.Second, Algorithm: test.algorithm}
				var mu sync.Mutex
				attempts, began := make(map[int64]int), time.Now()
				limiter := limit.New(nil, &limit.Options{Jitter: test.jitter, Observe: func(*http.Request, limit.Decision, error) {
					mu.Lock()
					defer mu.Unlock()
					attempts[int64(time.Since(began)/time.Second)]++ // Retry-After is in seconds
				}})
				h := limiter.Limit(limit.Named("obedient", rule))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				var done sync.WaitGroup
				for i := range clients {
					done.Go(func() {
						time.Sleep(time.Duration(i) * time.Microsecond) // as over a network
						for {
							w := routetest.Do(h, "GET", "/")
							if w.Code == http.StatusOK {
								return
							}
							seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
							if !assert.NoError(t, err) {
								return
							}
							time.Sleep(time.Duration(seconds) * time.Second)
						}
					})
				}
				done.Wait()
				took := time.Since(began)
				sum, most := 0, 0
				for at, n := range attempts {
					sum += n
					if at > 0 {
						most = max(most, n)
					}
				}
				t.Logf("%d clients were through after %v: %d attempts, %.1f for each; most in a second after the first: %d",
					clients, took.Round(time.Millisecond), sum, float64(sum)/clients, most)
				switch {
				case test.name == "queue":
					require.Equal(t, clients, sum, "each client is admitted once")
				case test.jitter == 0:
					require.LessOrEqual(t, took, clients/10*time.Second, "no slot is lost")
				default:
					require.Less(t, sum, 10*clients, "50 times as many come again without")
					require.LessOrEqual(t, most, 3*clients/int(test.jitter/time.Second))
				}
			})
		})
	}
}
