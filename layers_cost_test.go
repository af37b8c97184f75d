package limit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestCostOfLayers measures the processor time of Redis for a request to two rule sets, one around
// the other, of which nine in ten are refused by the inner one: with the outer set giving
// back what it took, and as if it did not. LIMIT_LONGEST=1 runs it, and wants a machine with
// nothing else to do: where it is slow, the breaker opens, and the round is repeated. BENCHMARKS.md
// has the figures; here they have a fifth more for noise.
func TestCostOfLayers(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	for _, test := range []struct {
		name string
		rule limit.Rule // of 10,000 an hour
	}{
		{"log", limit.Rule{}},
		{"cells", limit.Rule{Algorithm: limit.SlidingCells{}}},
		{"counter", limit.Rule{Algorithm: limit.SlidingCounter{}}},
		{"bucket", limit.Rule{Algorithm: limit.TokenBucket{Burst: 10_000}}},
		{"fixed window", limit.Rule{Algorithm: limit.FixedWindow{}}},
	} {
		test.rule.Key, test.rule.Limit, test.rule.Window = limit.ByIP, 10_000, time.Hour
		for _, callers := range []int{1, 64} {
			client := redistest.Real(t)
			var without atomic.Int64
			both := func() [2]http.Handler {
				return [2]http.Handler{layered(t, client, test.rule, false, &without), layered(t, client, test.rule, true, &without)}
			}
			handlers := both()
			var least [2]float64
			again := 0
			for round := 0; round < 8; round++ {
				var us [2]float64
				for i, h := range handlers {
					us[i] = costOfAbuse(t, client, h, callers)
				}
				if n := without.Swap(0); n > 0 { // the breaker opened: these cost Redis nothing
					again++
					require.Less(t, again, 20, "%d requests were decided without Redis: the machine has too much to do", n)
					require.NoError(t, client.Ping(t.Context()).Err())
					handlers = both() // the limiters have counted what Redis has not
					round--
					continue
				}
				for i := range us {
					if least[i] == 0 || us[i] < least[i] {
						least[i] = us[i]
					}
				}
			}
			ratio, most := least[1]/least[0], 2.0 // one caller pays a call of its own for what it gives back
			if callers > 1 {
				most = 1.5
			}
			t.Logf("%-12s %2d callers: %.1f us, giving back %.1f us: %.2f; %d rounds again", test.name, callers, least[0], least[1], ratio, again)
			assert.Less(t, ratio, 1.2*most)
		}
	}
}

// layered returns a handler behind two rule sets, of which the outer one gives back or not. Without
// counts the decisions that were made without the store.
func layered(t *testing.T, client *redis.Client, outer limit.Rule, gives bool, without *atomic.Int64) http.Handler {
	l := limit.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &limit.Options{
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			if err != nil || d.Mode != core.ModeExact && d.Mode != core.ModeRemembered {
				without.Add(1)
			}
		},
	})
	application := must.Get(l.Policy(limit.Named("app", outer)))(t)
	route := l.Limit(limit.Named("route", limit.PerIP(time.Hour, 5)))(ok200)
	return application.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !gives {
			w = httptest.NewRecorder() // as a request of the handler's own
		}
		route.ServeHTTP(w, r)
	}))
}

// costOfAbuse returns the us of Redis for a request: one in ten is of an address of its own,
// and the others are of one.
func costOfAbuse(t *testing.T, client *redis.Client, h http.Handler, callers int) float64 {
	const requests = 2560
	for _, key := range client.Keys(t.Context(), "limit:1:{*").Val() { // an emptied server has lost its data
		client.Del(t.Context(), key)
	}
	before := busy(t, client)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range requests / callers {
				r := httptest.NewRequest("GET", "/", nil)
				if i%10 == 0 {
					r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", c, i>>8&255, i&255)
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	wg.Wait()
	return (busy(t, client) - before) / requests
}

// busy returns the processor time that the server has used to answer, in us.
func busy(t *testing.T, client *redis.Client) (us float64) {
	info := client.Info(t.Context(), "cpu").Val()
	for _, name := range []string{"used_cpu_sys_main_thread:", "used_cpu_user_main_thread:"} {
		_, rest, found := strings.Cut(info, name)
		require.True(t, found, info)
		var s float64
		_, err := fmt.Sscan(rest, &s)
		require.NoError(t, err)
		us += s * 1e6
	}
	return us
}
