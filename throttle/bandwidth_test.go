package throttle_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/throttle"
)

func TestThrottleRate(t *testing.T) {
	for _, size := range []int{1, 37, 1_000, 10_000, 32_768, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			store := &countingStore{Store: memstore.New(nil)}
			total := 1_000_000
			if size == 1 {
				total = 200_000
			}
			h := throttle.Limit(byteLimiter(store), perUser, nil)(writes(t, total, size))
			f := newFlow()
			f.download(t.Context(), h, "alice")
			f.within(t, 10_000, 100_000)
			assert.Equal(t, total, f.by(time.Hour))
			// The last permit may be larger than what was left of the body.
			seconds := float64(total-10_000) / 100_000
			assert.InDelta(t, seconds, time.Since(f.start).Seconds(), 0.1)
			assert.Less(t, float64(store.asked.Load()), 10*seconds+60, "writes of %d", size)
		})
	}
}

// TestThrottleExact counts the bytes of rates that no number of microseconds is
// a multiple of: nothing is lost to rounding.
func TestThrottleExact(t *testing.T) {
	for _, test := range []struct {
		limit  int64
		window time.Duration
		total  int
	}{
		{99_991, time.Second, 5_000_000}, {7, 3 * time.Second, 700}, {1, time.Minute, 100},
		{333_333_333, 7 * time.Second, 2_000_000_000}, {1_000_003, 366 * 24 * time.Hour, 20_000},
		{1_000_000_000_000, time.Millisecond, 1_000_000_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			rule := throttle.Bandwidth(limit.ByUser, test.window, test.limit)
			rule.Algorithm = limit.TokenBucket{Burst: 1}
			rate := float64(test.limit) / test.window.Seconds()
			permit := int(min(max(rate/10, 1<<10), 1<<20, max(1, rate)))
			h := throttle.Limit(byteLimiter(nil), limit.Rules(rule), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				p := make([]byte, permit)
				for left := test.total; left > 0; left -= permit {
					if _, err := w.Write(p[:min(permit, left)]); !assert.NoError(t, err) {
						return
					}
				}
			}))
			f := newFlow()
			f.download(t.Context(), h, "alice")
			assert.Equal(t, test.total, f.by(time.Since(f.start)))
			got := time.Since(f.start).Seconds()
			want := float64(test.total-permit) / rate
			assert.GreaterOrEqual(t, got, want-1e-6)
			assert.LessOrEqual(t, got, want+float64(permit)/rate+1e-3)
		})
	}
}

// TestThrottleShared downloads over several connections: a user's share is one.
func TestThrottleShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		one := throttle.Limit(byteLimiter(store), perUser, nil)(writes(t, 300_000, 4096))
		other := throttle.Limit(byteLimiter(store), perUser, nil)(writes(t, 300_000, 32<<10))
		alice, bob := newFlow(), newFlow()
		var done sync.WaitGroup
		for _, h := range []http.Handler{one, one, other} {
			done.Go(func() { alice.download(t.Context(), h, "alice") })
		}
		done.Go(func() { bob.download(t.Context(), other, "bob") })
		done.Wait()
		alice.within(t, 10_000, 100_000)
		bob.within(t, 10_000, 100_000)
		assert.InDelta(t, 8.9, alice.pieces[len(alice.pieces)-1].at.Seconds(), 0.3)
		assert.InDelta(t, 2.9, bob.pieces[len(bob.pieces)-1].at.Seconds(), 0.1)
		assert.Less(t, store.asked.Load(), int64(10*(9+3)+60), "as often as for one connection")
	})
}

// TestThrottleStacked has a rule for each user and one for all: neither gets
// more than it says, and together they use all of it.
func TestThrottleStacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := throttle.Bandwidth(limit.Everyone, time.Second, 150_000)
		all.Algorithm = limit.TokenBucket{Burst: 15_000}
		rules := limit.Rules(append(perUser.Rules(), all)...)
		h := throttle.Limit(byteLimiter(nil), rules, nil)(writes(t, 750_000, 32<<10))
		sum, alice, bob := newFlow(), newFlow(), newFlow()
		var done sync.WaitGroup
		for user, f := range map[string]*flow{"alice": alice, "bob": bob} {
			done.Go(func() { f.download(t.Context(), h, user) })
		}
		done.Wait()
		sum.pieces = append(slices.Clone(alice.pieces), bob.pieces...)
		alice.within(t, 10_000, 100_000)
		bob.within(t, 10_000, 100_000)
		sum.within(t, 15_000, 150_000)
		assert.InDelta(t, (1_500_000-15_000)/150_000., time.Since(sum.start).Seconds(), 0.15)
	})
}

// TestThrottleBurst takes a burst, a pause, and the burst again.
func TestThrottleBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		rules := limit.Rules(throttle.Bandwidth(limit.ByUser, time.Second, 1_000_000))
		h := throttle.Limit(byteLimiter(store), rules, nil)(writes(t, 1_000_000, 32<<10))
		f := newFlow()
		f.download(t.Context(), h, "alice")
		assert.Less(t, time.Since(f.start), 100*time.Millisecond, "0 means a whole window's; the last permit may be larger than the rest")
		assert.Less(t, store.asked.Load(), int64(30), "permits are larger while the burst lasts")
		f.download(t.Context(), h, "alice")
		took := time.Since(f.start).Seconds()
		assert.True(t, took >= 1 && took <= 1.26, "%v s: at most a quarter of the first is lost", took)

		time.Sleep(time.Hour)
		again := newFlow()
		again.download(t.Context(), h, "alice")
		assert.Less(t, time.Since(again.start), 100*time.Millisecond)
		again.download(t.Context(), h, "alice")
		again.within(t, 1_000_000, 1_000_000)
	})
}

// TestThrottleUploads slows what the handler reads.
func TestThrottleUploads(t *testing.T) {
	for _, length := range []int64{250_000, -1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFlow()
			h := throttle.Limit(byteLimiter(nil), perUser, &throttle.Options{Of: throttle.Uploads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				buffer := make([]byte, 32<<10)
				for {
					n, err := r.Body.Read(buffer)
					assert.NotContains(t, string(buffer[:n]), "\x00")
					f.add(n)
					if err == io.EOF {
						break
					}
					if !assert.NoError(t, err) {
						break
					}
				}
			}))
			r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 250_000)))
			r.ContentLength = length
			r.Header.Set("X-User", "alice")
			h.ServeHTTP(recorder{f, http.Header{}}, r)
			f.within(t, 10_000, 100_000)
			assert.Equal(t, 250_000, f.by(time.Hour))
			assert.InDelta(t, 2.4, time.Since(f.start).Seconds(), 0.1)
		})
	}
}

// TestThrottleSmallUploads sends many bodies that say their length: no permit is
// lost at their ends.
func TestThrottleSmallUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := throttle.Limit(byteLimiter(nil), perUser, &throttle.Options{Of: throttle.Uploads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for p := make([]byte, 100); ; {
				if _, err := r.Body.Read(p); err != nil {
					assert.Equal(t, io.EOF, err)
					return
				}
			}
		}))
		start := time.Now()
		for range 80 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 2_550))))
		}
		assert.InDelta(t, (80*2_550-10_000)/100_000., time.Since(start).Seconds(), 0.001)
	})
}

// TestThrottleBoth counts what comes and what goes as one.
func TestThrottleBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := throttle.Limit(byteLimiter(nil), perUser, &throttle.Options{Of: throttle.Both})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(w, r.Body)
			assert.NoError(t, err)
			assert.EqualValues(t, 100_000, n)
		}))
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 100_000)))
		f := newFlow()
		h.ServeHTTP(recorder{f, http.Header{}}, r)
		assert.InDelta(t, 1.9, time.Since(f.start).Seconds(), 0.2)
	})
}

// TestThrottlePolicies checks who shares bytes: the requests of a route, or of a
// name, that count the same bodies; and no request that is counted itself.
func TestThrottlePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := byteLimiter(nil)
		named := limit.Named("files", perUser.Rules()...)
		routes := map[string]http.Handler{
			"route":        throttle.Limit(limiter, perUser, nil)(writes(t, 110_000, 10_000)),
			"limited":      limiter.Limit(perUser)(throttle.Limit(limiter, perUser, nil)(writes(t, 110_000, 10_000))),
			"shared":       throttle.Limit(limiter, named, nil)(writes(t, 60_000, 10_000)),
			"shared too":   throttle.Limit(limiter, named, nil)(writes(t, 60_000, 10_000)),
			"other bodies": throttle.Limit(limiter, named, &throttle.Options{Of: throttle.Both})(writes(t, 110_000, 10_000)),
		}
		took := make(map[string]time.Duration)
		var mu sync.Mutex
		var done sync.WaitGroup
		for name, h := range routes {
			done.Go(func() {
				f := newFlow()
				r := httptest.NewRequest("GET", "/", nil)
				r.Pattern = "/" + strings.Split(name, " ")[0]
				h.ServeHTTP(recorder{f, http.Header{}}, r)
				mu.Lock()
				defer mu.Unlock()
				took[name] = time.Since(f.start)
			})
		}
		done.Wait()
		assert.InDelta(t, 1.1, max(took["shared"], took["shared too"]).Seconds(), 0.15)
		for _, name := range []string{"route", "limited", "other bodies"} {
			assert.InDelta(t, 1, took[name].Seconds(), 0.15, name)
		}
	})
}

func TestThrottleErrors(t *testing.T) {
	limiter := limit.New(nil, nil)
	_, err := throttle.New(limiter, limit.Rules(
		limit.PerIP(time.Second, 100),
		limit.Rule{Name: "empty", Key: limit.Everyone, Limit: 100, Window: time.Second, Algorithm: limit.TokenBucket{Missing: 5},
			Cost: rules.CostBy("units", func(*http.Request) int64 { return 1 })},
		throttle.Bandwidth(limit.ByUser, time.Second, 100_000),
		throttle.Bandwidth(limit.Everyone, 366*24*time.Hour, 0),
	), &throttle.Options{Of: 7, Free: -1})
	require.Error(t, err)
	for _, want := range []string{
		`limit: rule "100/1s per ip": not a token-bucket, by which bytes are counted: write throttle.Bandwidth(key, window, bytes)`,
		`limit: rule "empty: 100/1s global token-bucket missing 5 cost units": 5 missing: a bucket of bytes begins full: leave it out`,
		`limit: rule "empty: 100/1s global token-bucket missing 5 cost units": a Cost: the cost of a body is its bytes: leave it out`,
		`limit: rule "0/366d global token-bucket": limit 0: write at least 1`,
		`limit: -1 bytes free: write 0 or more`,
		`limit: bodies 7: write throttle.Downloads, throttle.Uploads or throttle.Both`,
	} {
		assert.Contains(t, err.Error(), want)
	}
	assert.Panics(t, func() { throttle.Limit(limiter, limit.Rules(), nil)(nil) })

	long := throttle.Bandwidth(limit.Everyone, 366*24*time.Hour, 1)
	long.Algorithm = limit.TokenBucket{Burst: 10}
	_, err = throttle.New(limiter, limit.Rules(long), nil)
	assert.NoError(t, err, "what fills in ten years")

	named := limit.Named("files", throttle.Bandwidth(limit.ByIP, time.Second, 1000))
	must.Get(throttle.New(limiter, named, nil))(t)
	_, err = throttle.New(limiter, limit.Named("files", throttle.Bandwidth(limit.ByIP, time.Second, 2000)), nil)
	assert.ErrorContains(t, err, `policy "files.downloads": already has other rules`)
	_, err = throttle.New(limiter, limit.Named("files", throttle.Bandwidth(limit.ByIP, time.Second, 1000)), nil)
	assert.NoError(t, err, "the same rules by value")
	assert.PanicsWithError(t, `limit: rule "per-user-1s.downloads: 1000/1s per user queue burst 11000": no user resolver: `+
		"set Caller.User of limit.Options, or that of your adapter, such as rl.Caller.User", func() {
		throttle.Limit(limiter, limit.Rules(throttle.Bandwidth(limit.ByUser, time.Second, 1000)), nil)(http.NotFoundHandler())
	})

	parsed := limit.MustParse("20M/1s per ip token-bucket burst 1M")
	_, err = throttle.New(limiter, parsed, nil)
	assert.NoError(t, err)
}
