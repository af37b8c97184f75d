package throttle_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// shared is 1 MB a second for all clients, and a tenth of that at once.
var shared = limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 1_000_000, Window: time.Second,
	Algorithm: limit.TokenBucket{Burst: 100_000}})

// A stalled body has one byte, and then none until its client disconnects.
type stalled struct {
	ctx  context.Context
	sent bool
}

func (s *stalled) Read(p []byte) (int, error) {
	if !s.sent {
		s.sent = true
		return 1, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// A deaf response takes nothing until its client disconnects.
type deaf struct{ ctx context.Context }

func (deaf) Header() http.Header { return http.Header{} }
func (deaf) WriteHeader(int)     {}
func (d deaf) Write([]byte) (int, error) {
	<-d.ctx.Done()
	return 0, d.ctx.Err()
}

// besides returns how long a transfer takes that starts a second after clients that come
// 20 times a second, for a minute.
func besides(attack func(context.Context), honest func()) (took time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for range 1200 {
			if ctx.Err() != nil {
				return
			}
			done.Go(func() { attack(ctx) })
			time.Sleep(50 * time.Millisecond)
		}
	})
	time.Sleep(time.Second)
	start := time.Now()
	honest()
	took = time.Since(start)
	cancel()
	done.Wait()
	return took
}

// TestThrottlePromised has clients that promise large uploads and send one byte of each.
// An upload beside them is slowed by the bytes that passed, and not by the promises.
func TestThrottlePromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := throttle.Limit(byteLimiter(nil), shared, &throttle.Options{Of: throttle.Uploads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		post := func(ctx context.Context, body io.Reader, length int64) {
			r := httptest.NewRequest("POST", "/", body).WithContext(ctx)
			r.ContentLength = length
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		took := besides(func(ctx context.Context) { post(ctx, &stalled{ctx: ctx}, 100_000_000) }, func() {
			post(t.Context(), strings.NewReader(strings.Repeat("x", 550_000)), 550_000)
		})
		t.Logf("550 kB with a burst of 100 kB: %v", took)
		assert.InDelta(t, 0.45, took.Seconds(), 0.01)
	})
}

// TestThrottleUnread does the same with downloads: clients ask for large ones, and read
// nothing.
func TestThrottleUnread(t *testing.T) {
	for _, says := range []string{"", "100000000"} {
		synctest.Test(t, func(t *testing.T) {
			h := throttle.Limit(byteLimiter(nil), shared, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if says != "" {
					w.Header().Set("Content-Length", says)
				}
				_, _ = w.Write(make([]byte, 550_000))
			}))
			took := besides(func(ctx context.Context) {
				h.ServeHTTP(deaf{ctx}, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			}, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
			t.Logf("550 kB with a burst of 100 kB: %v", took)
			assert.Less(t, took.Seconds(), 1.)
		})
	}
}

// An ended body has so many bytes, and returns them together with io.EOF, as that of
// net/http does if the length is known.
type ended int

func (e ended) Read(p []byte) (int, error) { return min(int(e), len(p)), io.EOF }

// TestThrottleLastRead checks that a read that also ends the body is paid.
func TestThrottleLastRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := throttle.Limit(byteLimiter(nil), perUser, &throttle.Options{Of: throttle.Uploads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n, err := r.Body.Read(make([]byte, 32<<10))
			assert.Equal(t, 5_000, n)
			assert.Equal(t, io.EOF, err)
		}))
		start := time.Now()
		for range 100 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", ended(5_000)))
		}
		assert.InDelta(t, (500_000-10_000)/100_000., time.Since(start).Seconds(), 0.001)
	})
}

// TestThrottleOverridden gives a key another rate than its rule has: what passes at any time is at
// most the burst, and what comes at that rate. A burst below one permit counts as one permit of the lower rate.
func TestThrottleOverridden(t *testing.T) {
	for _, test := range []struct{ burst, rate, most int64 }{
		{5_000, 1_000_000, 5_000}, {0, 1_000_000, 10_000}, {5_000, 2_000, 5_000}, {0, 2_000, 2_000}, {0, 100, 100}, {5_000, 100, 5_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := limit.New(nil, &limit.Options{Override: func(string, string, string) int64 { return test.rate }})
			rule := throttle.Bandwidth(limit.Everyone, time.Second, 10_000)
			rule.Algorithm = limit.TokenBucket{Burst: test.burst}
			start, size := time.Now(), 2*test.rate+20_000
			h := throttle.Limit(limiter, limit.Rules(rule), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for sent := int64(0); sent < size; sent += 10 {
					_, err := w.Write(make([]byte, 10))
					if most := test.most + int64(float64(test.rate)*time.Since(start).Seconds()); !assert.NoError(t, err) || !assert.LessOrEqual(t, sent+10, most+1, "%+v", test) {
						return
					}
				}
			}))
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			assert.InDelta(t, float64(size-test.most)/float64(test.rate), time.Since(start).Seconds(), 0.1+600/float64(test.rate), "%+v", test)
		})
	}
}
