package limit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/waiting"
)

// TestReserve takes what each class can have of a limit, alone and after the others, for
// every algorithm that can reserve.
func TestReserve(t *testing.T) {
	for _, words := range []string{"", "fixed-window", "sliding-cells", "sliding-counter", "token-bucket", "leaky-bucket", "queue burst 99", "concurrency"} {
		limiter := New(nil, nil)
		policy := mustPolicy(limiter, Named("p", MustParse("100/1h per user plan small 10 plan large 1000 plan one 1 reserve critical 20 reserve default 10 "+words).Declared()...))
		for _, row := range []struct {
			plan                            string
			background, byDefault, critical int64 // units that are left
		}{
			{"", 70, 10, 20}, {"unknown", 70, 10, 20}, {"small", 7, 1, 2}, {"large", 700, 100, 200}, {"one", 1, 0, 0},
		} {
			if words == "queue burst 99" { // its capacity does not depend on the limit
				row.background, row.byDefault, row.critical = 70, 10, 20
			}
			request := Request{Keys: keysOf("user", words+row.plan), Plan: row.plan, UpTo: true, Cost: 10_000}
			for _, take := range []struct {
				class string
				want  int64
			}{{"background", row.background}, {"background", 0}, {"", row.byDefault}, {"nonsense", 0}, {"background", 0}, {"critical", row.critical}, {"critical", 0}} {
				request.Class = take.class
				peeked := must.Get(policy.Peek(t.Context(), Request{Keys: request.Keys, Plan: row.plan, Class: take.class}))(t)
				assert.Equal(t, []any{take.want > 0, take.want}, []any{peeked.Allowed, slices.Collect(peeked.Rules())[0].Remaining}, "%s, plan %q, class %q", words, row.plan, take.class)
				d := must.Get(policy.Take(t.Context(), request))(t)
				assert.Equal(t, take.want, d.Taken, "%s, plan %q, class %q", words, row.plan, take.class)
			}
		}
	}
}

// keysOf returns the keys of a request with one.
func keysOf(label, value string) map[string]string { return map[string]string{label: value} }

// TestReserveHeaders shows a class what it can still use, and refuses it with the time
// after which it can come back.
func TestReserveHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := ""
		limiter := New(nil, &Options{Caller: Caller[*http.Request]{Class: func(*http.Request) string { return class }}})
		h := limiter.Limit(MustParse("5/10s global reserve critical 3"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, row := range []struct {
			class, remaining string
			status           int
		}{{"", "1", 200}, {"background", "0", 200}, {"background", "0", 429}, {"critical", "2", 200}, {"", "0", 429}, {"critical", "1", 200}} {
			class = row.class
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil)
			r.Pattern = "/"
			h.ServeHTTP(w, r)
			assert.Equal(t, row.status, w.Code)
			assert.Contains(t, w.Header().Get("RateLimit"), `"global-10s";r=`+row.remaining)
			if row.status == 429 {
				assert.NotEmpty(t, w.Header().Get("Retry-After"))
			}
			time.Sleep(time.Second)
		}
	})
}

// TestReserveNeverAdmitsMore draws requests of random plans and classes on one key: no
// window has more than the largest limit, and no class takes a part that is reserved.
func TestReserveNeverAdmitsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		policy := mustPolicy(New(nil, nil), Named("p", MustParse("10/1s global plan a 5 plan b 20 reserve critical 4 reserve default 3").Declared()...))
		var units []time.Time
		limits := map[string]int64{"": 10, "a": 5, "b": 20}
		kept := map[string]map[string]int64{"critical": {}, "": {"": 4, "a": 2, "b": 8}, "background": {"": 7, "a": 4, "b": 14}}
		admitted := 0
		for range 20_000 {
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			plan := []string{"", "a", "b"}[random.IntN(3)]
			class := []string{"critical", "", "background"}[random.IntN(3)]
			live := int64(0)
			for _, at := range units {
				if time.Since(at) < time.Second {
					live++
				}
			}
			d := must.Get(policy.Take(t.Context(), Request{Plan: plan, Class: class}))(t)
			require.Equal(t, live+1+kept[class][plan] <= limits[plan], d.Allowed, "plan %q, class %q, %d live", plan, class, live)
			if d.Allowed {
				admitted++
				units = append(units[max(0, len(units)-20):], time.Now())
			}
		}
		assert.Greater(t, admitted, 5000)
	})
}

// ofClass starts a call of Wait of a class.
func (w *waits) ofClass(class string, n int64) *wait {
	ctx, cancel := context.WithCancel(w.t.Context())
	result := &wait{cancel: cancel}
	w.done.Go(func() {
		defer cancel()
		result.d, result.err = mustPolicy(w.limiter, w.rules).Wait(ctx, Request{Keys: keysOf("user", "alice"), Cost: n, Class: class})
		result.took = time.Since(w.start)
	})
	synctest.Wait()
	return result
}

// TestWaitClasses has waiters of all classes come at once: higher ones are first, those
// of one class in the order in which they came, and the earliest of the lower ones
// after each waiting.Overtakes.
func TestWaitClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, MustParse("1/1s per user").Declared()...)
		w.ofClass("", 1) // takes the first slot
		low := []*wait{w.ofClass("background", 1), w.ofClass("background", 1)}
		middle := []*wait{w.ofClass("", 1), w.ofClass("default", 1)}
		var high []*wait
		for range 10 {
			high = append(high, w.ofClass("critical", 1))
		}
		w.end()
		s := func(seconds ...int) (at []time.Duration) {
			for _, n := range seconds {
				at = append(at, time.Duration(n)*time.Second)
			}
			return at
		}
		admitted(t, s(1, 2, 3, 5, 6, 7, 9, 10, 11, 13), high...)
		admitted(t, s(4, 8), low...)
		admitted(t, s(12, 14), middle...)
	})
}

// TestWaitNotStarved has critical requests come forever, faster than the limit, while
// one of the background waits. The bound is that of docs/plans.md.
func TestWaitNotStarved(t *testing.T) {
	for _, rule := range []string{"1/1s per user", "10/1s per user token-bucket burst 1", "1/10s per user", "1/1s per user; 100/1h per user fixed-window"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaits(t, nil, MustParse(rule).Declared()...)
			w.ofClass("critical", 1)
			var all []*wait
			for range 3 {
				all = append(all, w.ofClass("critical", 1))
			}
			low := w.ofClass("background", 1)
			before := len(all)
			var later []*wait
			for range 30 {
				later = append(later, w.ofClass("critical", 1))
				time.Sleep(50 * time.Millisecond)
			}
			w.end()
			require.NoError(t, low.err)
			overtook := 0
			for _, l := range later {
				require.NoError(t, l.err)
				if l.took < low.took {
					overtook++
				}
			}
			assert.LessOrEqual(t, overtook, waiting.Overtakes, "%s: %d came before", rule, before)
			assert.Positive(t, overtook, rule)
		})
	}
}

// TestWaitUnderReserve has a background request wait for a part of the limit that is
// reserved. It does not hold up the critical requests that come later.
func TestWaitUnderReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, MustParse("10/10s per user fixed-window reserve critical 5").Declared()...)
		w.take("alice", 5)
		low := w.ofClass("background", 1)
		for i := range 5 {
			high := w.ofClass("critical", 1)
			require.NoError(t, high.err)
			assert.Zero(t, high.took, "critical %d does not wait", i)
		}
		high := w.ofClass("critical", 6)
		again := w.ofClass("background", 1)
		w.end()
		admitted(t, []time.Duration{10 * time.Second}, high)
		require.NoError(t, low.err)
		require.NoError(t, again.err)
		assert.GreaterOrEqual(t, min(low.took, again.took), 10*time.Second, "what is reserved is not theirs")
	})
}

// TestWaitOfPlans has callers on two plans wait for one key: each waits for its own limit,
// and not behind the other.
func TestWaitOfPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := mustPolicy(New(nil, nil), Named("p", MustParse("1/10s per ip plan pro 3").Declared()...))
		began := time.Now()
		var done sync.WaitGroup
		took := make([]time.Duration, 5)
		for i, plan := range []string{"", "", "pro", "pro", "pro"} {
			done.Go(func() {
				_, err := policy.Wait(t.Context(), Request{Keys: keysOf("ip", "203.0.113.9"), Plan: plan})
				assert.NoError(t, err)
				took[i] = time.Since(began)
			})
			synctest.Wait()
		}
		done.Wait()
		s := time.Second
		assert.Positive(t, took[1])
		assert.Equal(t, []time.Duration{0, 0, 0, 10 * s}, append(took[:1], took[2:]...))
	})
}

// TestWaitOfRequests has HTTP requests of three classes wait, of which some leave. The
// order is kept, and nothing is left behind.
func TestWaitOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := New(nil, &Options{Caller: Caller[*http.Request]{Class: func(r *http.Request) string { return r.Header.Get("Class") }}})
		policy := mustPolicy(limiter, Named("p", MustParse("1/1s global refuse wait 1m").Declared()...))
		var mu sync.Mutex
		var order []string
		h := policy.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.Header.Get("Class")+r.Header.Get("N"))
		}))
		done := make(chan bool)
		start := func(class string, n int, leaves bool) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Class", class)
			r.Header.Set("N", fmt.Sprint(n))
			ctx, cancel := context.WithCancel(t.Context())
			if leaves {
				time.AfterFunc(100*time.Millisecond, cancel)
			}
			go func() {
				defer cancel()
				h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
				done <- true
			}()
			synctest.Wait()
		}
		start("first", 0, false)
		n := 1
		for i := range 4 {
			for _, class := range []string{"background", "default", "critical"} {
				start(class, i, false)
				start(class, 100+i, true)
				n += 2
			}
		}
		for range n {
			<-done
		}
		assert.Equal(t, []string{"first0", "critical0", "critical1", "critical2", "background0", "critical3", "default0", "default1", "default2",
			"default3", "background1", "background2", "background3"}, order)
		assert.Zero(t, limiter.engine.Queues.Len())
	})
}

// TestKept compares the reserve of a caller with its definition.
func TestKept(t *testing.T) {
	r := &Rule{Limit: 100, Window: time.Second, Reserve: map[string]int64{"a": 20, "b": 1}}
	for _, row := range []struct{ capacity, one, both int64 }{{100, 20, 21}, {10, 2, 3}, {1, 0, 0}, {2, 1, 1}, {1000, 200, 210}, {core.MaxLimit, core.MaxLimit / 5, core.MaxLimit / 100 * 21}} {
		assert.Equal(t, []int64{0, row.one, row.both}, []int64{r.Kept(nil, row.capacity), r.Kept([]string{"a"}, row.capacity),
			r.Kept([]string{"a", "b"}, row.capacity)}, row.capacity)
	}
}

// TestNoticeOfUnknownClass sends a misspelled class.
func TestNoticeOfUnknownClass(t *testing.T) {
	var log bytes.Buffer
	l := New(nil, &Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	p := must.Get(l.Policy(Named("p", MustParse("10/1m global reserve critical 2").Rules()...)))(t)
	for _, class := range []string{"", "critical", "background"} {
		must.Get(p.Take(t.Context(), Request{Class: class}))(t)
	}
	assert.Empty(t, log.String())
	for range 2 {
		must.Get(p.Take(t.Context(), Request{Class: "backgruond"}))(t)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	assert.Contains(t, log.String(), `code=LIMIT-115 class=backgruond classes="critical, default, background"`)
}
