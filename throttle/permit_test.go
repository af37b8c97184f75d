package throttle_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/throttle"
)

func TestThrottleFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		options := &throttle.Options{Free: 50_000}
		f := newFlow()
		f.download(t.Context(), throttle.Limit(byteLimiter(store), perUser, options)(writes(t, 50_000, 7_000)), "alice")
		assert.Zero(t, time.Since(f.start))
		assert.Zero(t, store.asked.Load())
		f.download(t.Context(), throttle.Limit(byteLimiter(store), perUser, options)(writes(t, 160_000, 7_000)), "alice")
		assert.Equal(t, 110_000, f.by(0), "what is free, twice, and the burst")
		assert.InDelta(t, 1, time.Since(f.start).Seconds(), 0.05)
	})
}

// TestThrottleSmall answers many requests with few bytes: what they lose of
// their permits is at most a quarter, and nothing if they say their length.
func TestThrottleSmall(t *testing.T) {
	for _, says := range []string{"", "500"} {
		synctest.Test(t, func(t *testing.T) {
			h := throttle.Limit(byteLimiter(nil), perUser, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if says != "" {
					w.Header().Set("Content-Length", says)
				}
				for range 10 {
					_, err := io.WriteString(w, strings.Repeat("x", 50))
					assert.NoError(t, err)
				}
			}))
			f := newFlow()
			for range 400 {
				f.download(t.Context(), h, "alice")
			}
			f.within(t, 10_000, 100_000)
			most := 1.25
			if says != "" {
				most = 1
			}
			assert.LessOrEqual(t, time.Since(f.start).Seconds(), (200_000*most-10_000)/100_000+0.001)
		})
	}
}

// TestThrottleCrowd has more connections than may stand in line at once: all of
// them come to an end, at the rate, and they do not storm the store.
func TestThrottleCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		h := throttle.Limit(byteLimiter(store), perUser, nil)(writes(t, 20_000, 10_000))
		f := newFlow()
		var done sync.WaitGroup
		for range 500 {
			done.Go(func() { f.download(t.Context(), h, "alice") })
		}
		done.Wait()
		f.within(t, 10_000, 100_000)
		assert.InDelta(t, (500*20_000-10_000)/100_000., time.Since(f.start).Seconds(), 1)
		perSecond := float64(store.asked.Load()) / time.Since(f.start).Seconds()
		t.Logf("500 connections of one user asked %.0f times a second", perSecond)
		assert.Less(t, perSecond, 200.)
	})
}

func TestThrottleGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		f := newFlow()
		throttle.Limit(byteLimiter(nil), perUser, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n, err := w.Write(make([]byte, 1_000_000))
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, f.by(time.Hour), n, "it says what has been written")
			assert.InDelta(t, 160_000, n, 10_000)
			n, err = io.WriteString(w, "more")
			assert.ErrorIs(t, err, context.Canceled)
			assert.Zero(t, n)
		})).ServeHTTP(recorder{f, http.Header{}}, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		assert.Equal(t, 1500*time.Millisecond, time.Since(f.start))
	})
}

// TestThrottleStoreFails breaks the store in the middle of two bodies: they go
// on at the limit of one process, and by the store when it works again.
func TestThrottleStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		limiter := limit.New(store, &limit.Options{
			Caller:  limit.Caller[*http.Request]{User: func(*http.Request) string { return "alice" }},
			Observe: func(_ *http.Request, _ limit.Decision, err error) { t.Error(err) },
		})
		h := throttle.Limit(limiter, perUser, nil)(writes(t, 500_000, 32<<10))
		f := newFlow()
		var works, broken atomic.Int64 // how often the store had been asked
		time.AfterFunc(2*time.Second+time.Millisecond, func() { store.fails.Store(true); works.Store(store.asked.Load()) })
		time.AfterFunc(6*time.Second+time.Millisecond, func() { store.fails.Store(false); broken.Store(store.asked.Load()) })
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() { f.download(t.Context(), h, "alice") })
		}
		done.Wait()
		f.within(t, 10_000, 100_000)
		assert.Equal(t, 1_000_000, f.by(time.Hour))
		assert.InDelta(t, 9.8, time.Since(f.start).Seconds(), 0.4)
		assert.LessOrEqual(t, broken.Load()-works.Load(), int64(20), "five failures, and probes")
		assert.Greater(t, store.asked.Load()-broken.Load(), int64(25), "by the store again")
	})
}

// TestThrottleStoreHangs has a store that takes its time to fail: one connection
// at a time finds out, and the others go on.
func TestThrottleStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil), stall: time.Second}
		store.fails.Store(true)
		h := throttle.Limit(byteLimiter(store), perUser, nil)(writes(t, 200_000, 10_000))
		f := newFlow()
		var done sync.WaitGroup
		for range 5 {
			done.Go(func() { f.download(t.Context(), h, "alice") })
		}
		done.Wait()
		f.within(t, 10_000, 100_000)
		took := time.Since(f.start).Seconds()
		assert.InDelta(t, 11.5, took, 1.5, "a second until the first has failed, and one for the probe of the last")
		assert.LessOrEqual(t, store.asked.Load(), int64(5+took), "the first of each, and then one at a time, of a second")
		store.fails.Store(false)
		time.Sleep(2 * store.stall) // the guard may be looking whether the store is back
	})
}

// TestThrottleStoreNonsense has a store that cannot decide, and is not out of
// reach: a client may have caused that, and gains no bytes by it.
func TestThrottleStoreNonsense(t *testing.T) {
	nonsense := errors.New("nonsense")
	var seen atomic.Int64
	limiter := limit.New(guard.New(failing{err: nonsense}, nil), &limit.Options{
		Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "alice" }},
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			assert.ErrorIs(t, err, limit.ErrUndecided)
			assert.ErrorIs(t, err, nonsense)
			seen.Add(1)
		},
	})
	throttle.Limit(limiter, perUser, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, err := w.Write(make([]byte, 10_000))
		assert.ErrorIs(t, err, limit.ErrUndecided)
		assert.Zero(t, n)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.EqualValues(t, 1, seen.Load())
}

type failing struct {
	core.Store
	err error
}

func (f failing) Take(context.Context, []core.Ask) error {
	return f.err
}

// TestThrottleShares has one of many instances go on alone with a body whose
// usual permit is more than its share of the line holds.
func TestThrottleShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limit.New(failing{err: core.ErrUnavailable}, &limit.Options{Instances: 100,
			Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "alice" }}})
		f := newFlow()
		f.download(t.Context(), throttle.Limit(limiter, limit.Rules(throttle.Bandwidth(limit.ByUser, time.Second, 3000)), nil)(writes(t, 1_000, 500)), "alice")
		f.within(t, 3000/100*7, 3000/100)
		assert.Less(t, time.Since(f.start), time.Minute)
	})
}

// TestThrottleLargeBurst asks the store rarely while a burst lasts that takes
// little of a second at full speed.
func TestThrottleLargeBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		day := throttle.Bandwidth(limit.ByUser, 24*time.Hour, 10_000_000_000)
		f := newFlow()
		f.download(t.Context(), throttle.Limit(byteLimiter(store), limit.Rules(day), nil)(writes(t, 100_000_000, 32<<10)), "alice")
		assert.Zero(t, time.Since(f.start))
		assert.Less(t, store.asked.Load(), int64(150), "a permit is a mebibyte at most")
	})
}

// TestThrottleDone checks that nothing is taken for a client that has gone.
func TestThrottleDone(t *testing.T) {
	store := &countingStore{Store: memstore.New(nil)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	throttle.Limit(byteLimiter(store), perUser, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte("hello"))
		assert.ErrorIs(t, err, context.Canceled)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	assert.Zero(t, store.asked.Load())
}

// TestThrottleHead checks that an answer without a body costs nothing.
func TestThrottleHead(t *testing.T) {
	store := &countingStore{Store: memstore.New(nil)}
	h := throttle.Limit(byteLimiter(store), perUser, &throttle.Options{Of: throttle.Both})(writes(t, 1_000_000, 10_000))
	h.ServeHTTP(recorder{newFlow(), http.Header{}}, httptest.NewRequest("HEAD", "/", nil))
	assert.Zero(t, store.asked.Load())
}
