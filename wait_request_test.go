package limit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
)

// patient sends a request to h, and returns the answer and how long it took.
func patient(ctx context.Context, h http.Handler, key string) (*httptest.ResponseRecorder, time.Duration) {
	began := time.Now()
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	r.Header.Set("X-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, time.Since(began)
}

var nothing = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// TestRequestWaits checks when a request is admitted that comes when nothing is left,
// and when it is refused.
func TestRequestWaits(t *testing.T) {
	for _, test := range []struct {
		rules  string
		took   time.Duration
		status int
		retry  string
	}{
		{"1/1s global refuse wait 2s", time.Second, 204, ""},
		{"1/1s global refuse wait 1s", 0, 429, "1"}, // it is not before the end
		{"1/10s global refuse wait 2s refuse 503", 0, 503, "10"},
		{"1/1s global refuse wait 2s; 1/1h global", 0, 429, "3600"}, // a rule without a wait
		{"1/1s global refuse wait 2s; b: 1/3s global refuse wait 5s", 0, 429, "3"},
		{"1/1s global refuse wait 4s; b: 1/3s global refuse wait 5s", 3 * time.Second, 204, ""},
		{"1/1s global refuse wait 1s; b: 9/3s global refuse wait 5s", 0, 429, "1"},
		{"1/1s global refuse wait 2s; b: 9/3s global refuse 503", time.Second, 204, ""},
		{"1/1s global queue refuse wait 2s", time.Second, 204, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var last Decision
			l := New(nil, &Options{Observe: func(_ *http.Request, d Decision, err error) {
				assert.NoError(t, err)
				last = d
			}})
			h := l.Limit(MustParse(test.rules))(nothing)
			w, took := patient(t.Context(), h, "")
			require.Equal(t, 204, w.Code)
			require.Zero(t, took)
			require.Zero(t, last.Waited)
			w, took = patient(t.Context(), h, "")
			assert.Equal(t, test.status, w.Code, test.rules)
			assert.InDelta(t, test.took, took, float64(time.Millisecond), test.rules)
			assert.Equal(t, test.retry, w.Header().Get("Retry-After"), test.rules)
			if test.took == 0 {
				assert.Zero(t, last.Waited)
			} else {
				assert.InDelta(t, test.took, last.Waited, float64(time.Millisecond), test.rules)
			}
		})
	}
}

// TestRequestsWaitInOrder has requests, and one caller of Wait, wait for one key. Those
// that are too late are refused at once, and the others admitted as they came.
func TestRequestsWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		p := must.Get(l.Policy(Named("p", Per(ByHeader("X-Key"), time.Second, 1)).OnRefusal(Refusal{Wait: 3500 * time.Millisecond})))(t)
		h := p.Handler(nothing)
		start := time.Now()
		var mu sync.Mutex
		var order []string
		arrive := func(name string, f func()) {
			go func() {
				f()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprintf("%s %v", name, time.Since(start).Round(100*time.Millisecond)))
			}()
			synctest.Wait()
		}
		request := func(name string, status int) {
			arrive(name, func() {
				w, _ := patient(t.Context(), h, "a")
				assert.Equal(t, status, w.Code, name)
			})
		}
		request("first", 204)
		request("second", 204)
		arrive("wait", func() {
			_, err := p.Wait(t.Context(), Request{Keys: map[string]string{"header X-Key": "a"}})
			assert.NoError(t, err)
		})
		request("third", 204)
		request("in vain", 429) // its turn would come after 4 s, as it learns after 3 s
		w, took := patient(t.Context(), h, "b")
		assert.Equal(t, 204, w.Code, "another key")
		assert.Zero(t, took)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// At one instant, those that are done finish in any order.
		assert.ElementsMatch(t, []string{"first 0s", "second 1s", "wait 2s", "third 3s", "in vain 3s"}, order)
		assert.Zero(t, l.engine.Queues.Len())
	})
}

// TestWaitsInVain checks that the Retry-After after a wait in vain is true.
func TestWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		h := l.Limit(Rules(Global(10*time.Second, 1)).OnRefusal(Refusal{Wait: 15 * time.Second}))(nothing)
		patient(t.Context(), h, "")
		go patient(t.Context(), h, "") // admitted after 10 s
		synctest.Wait()
		time.Sleep(time.Second)
		w, took := patient(t.Context(), h, "") // would be after 20 s
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, 9*time.Second, took, "then it is known that its turn comes too late")
		retry := must.Get(strconv.Atoi(w.Header().Get("Retry-After")))(t)
		assert.Equal(t, 10, retry)
		time.Sleep(time.Duration(retry) * time.Second)
		w, took = patient(t.Context(), h, "")
		assert.Equal(t, 204, w.Code)
		assert.Zero(t, took)
	})
}

// TestWaitersAreBounded checks the bounds of a key and of the limiter.
func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, &Options{Waiters: 3})
		h := l.Limit(Rules(Per(ByHeader("X-Key"), time.Minute, 1)).OnRefusal(Refusal{Wait: time.Hour, Waiters: 2}))(nothing)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		arrive := func(key string) {
			done.Go(func() { patient(ctx, h, key) })
			synctest.Wait()
		}
		for range 3 {
			arrive("a")
		}
		w, took := patient(ctx, h, "a")
		assert.Equal(t, 429, w.Code, "two wait for the key")
		assert.Zero(t, took)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
		arrive("b")
		arrive("b")
		arrive("c")
		w, _ = patient(ctx, h, "b")
		assert.Equal(t, 429, w.Code, "three wait in all")
		w, _ = patient(ctx, h, "c")
		assert.Equal(t, 429, w.Code, "three wait in all")
		assert.EqualValues(t, 3, l.engine.Queues.Len())
		cancel()
		done.Wait()
		assert.Zero(t, l.engine.Queues.Len())
	})
}

// TestWaitEndsWithTheContext checks the status of requests whose client leaves, and
// that those with a deadline are refused before it.
func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, &Options{Observe: func(_ *http.Request, _ Decision, err error) { assert.NoError(t, err) }})
		h := l.Limit(Rules(Global(10*time.Second, 1)).OnRefusal(Refusal{Wait: time.Minute}))(nothing)
		patient(t.Context(), h, "")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		w, took := patient(ctx, h, "")
		assert.Equal(t, 499, w.Code)
		assert.Equal(t, time.Second, took)
		assert.Empty(t, w.Header().Get("Ratelimit"))

		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		w, took = patient(ctx, h, "")
		assert.Equal(t, 429, w.Code)
		assert.Zero(t, took)
		assert.Equal(t, "9", w.Header().Get("Retry-After"))

		done := make(chan bool)
		go func() {
			defer close(done)
			w, _ := patient(t.Context(), h, "")
			assert.Equal(t, 204, w.Code)
		}()
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		w, took = patient(ctx, h, "") // behind one whose time comes before the deadline
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, 9*time.Second, took.Round(time.Millisecond), "then it is known that its time comes too late")
		assert.Equal(t, "10", w.Header().Get("Retry-After"))
		<-done
		assert.Zero(t, l.engine.Queues.Len())
	})
}

// TestWaitForALease checks that a request gets the slot of one that ends, whatever the
// life of a lease is, and asks once more before it is refused.
func TestWaitForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		h := l.Limit(Rules(Rule{Key: Everyone, Limit: 1, Algorithm: Concurrency{}}).OnRefusal(Refusal{Wait: 2 * time.Second}))(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { time.Sleep(1500 * time.Millisecond) }))
		var done sync.WaitGroup
		for i := range 3 {
			done.Go(func() {
				w, took := patient(t.Context(), h, "")
				switch i {
				case 0:
					assert.Equal(t, 1500*time.Millisecond, took)
				case 1:
					assert.Equal(t, 3*time.Second, took)
				case 2: // its turn would come after 3 s
					assert.Equal(t, 429, w.Code)
					assert.Equal(t, 2*time.Second, took.Round(time.Millisecond))
				}
			})
			synctest.Wait()
		}
		done.Wait()
		assert.Zero(t, l.engine.Queues.Len())
	})
}

// TestManyWaiters has 1,000 requests wait, of which half leave. The others are
// admitted in the order in which they came, and nothing is left of any.
func TestManyWaiters(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		l := New(nil, nil)
		var mu sync.Mutex
		var order []string
		rule := Global(100*time.Millisecond, 1)
		rule.OnRefusal = Refusal{Wait: time.Hour, Waiters: n}
		h := l.Limit(Rules(rule))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.Header.Get("X-Key"))
		}))
		var done sync.WaitGroup
		var left []weak.Pointer[[64]byte] // of each request
		var cancels []context.CancelFunc
		var want []string
		for i := range n + 1 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 {
				want = append(want, strconv.Itoa(i))
			} else {
				cancels = append(cancels, cancel)
			}
			mark := new([64]byte)
			left = append(left, weak.Make(mark))
			ctx = context.WithValue(ctx, markKey{}, mark)
			done.Go(func() {
				w, _ := patient(ctx, h, strconv.Itoa(i))
				assert.Contains(t, []int{200, 499}, w.Code)
			})
			synctest.Wait()
		}
		assert.EqualValues(t, n, l.engine.Queues.Len())
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+n+5, "no goroutine but those of the requests")
		for _, cancel := range cancels {
			cancel()
		}
		done.Wait()
		assert.True(t, slices.Equal(want, order))
		assert.Zero(t, l.engine.Queues.Len())
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+5)
		for range 3 { // what is in a pool survives one collection
			runtime.GC()
		}
		for i := range left {
			assert.Nil(t, left[i].Value(), "request %d", i)
		}
		runtime.KeepAlive(l)
	})
}

type markKey struct{}

// TestAdmittedRequestsAllocateNoWaiter checks that a rule that lets requests wait costs
// those that it admits, and those that it refuses at once, no allocation.
func TestAdmittedRequestsAllocateNoWaiter(t *testing.T) {
	allocations := func(limit int64, refusal Refusal) float64 {
		p := mustPolicy(New(nil, nil), Named("p", Global(time.Hour, limit)).OnRefusal(refusal))
		h, r, w := p.Handler(nothing), httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		return testing.AllocsPerRun(1000, func() {
			clear(w.Header())
			h.ServeHTTP(w, r)
		})
	}
	most := 1.
	if race.Enabled { // it has pools drop some of what they are given
		most = 3
	}
	for _, limit := range []int64{1, 10_000} {
		assert.InDelta(t, allocations(limit, Refusal{}), allocations(limit, Refusal{Wait: time.Second}), most, limit)
	}
}

// TestWaitOnAServer has a client leave while its request waits, and a server whose
// WriteTimeout would cut the answer.
func TestWaitOnAServer(t *testing.T) {
	l := New(nil, nil)
	entered, left := make(chan bool, 10), make(chan int, 10)
	limited := l.Limit(Rules(Global(time.Hour, 1)).OnRefusal(Refusal{Wait: 2 * time.Hour}))(nothing)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		status := httptest.NewRecorder()
		limited.ServeHTTP(status, r)
		left <- status.Code
		w.WriteHeader(status.Code)
	}))
	server.Start()
	defer server.Close()
	get := func() int {
		response := must.Get(server.Client().Get(server.URL))(t)
		response.Body.Close()
		return response.StatusCode
	}
	require.Equal(t, 204, get())
	<-entered
	require.Equal(t, 204, <-left)

	conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	require.Eventually(t, func() bool { return l.engine.Queues.Len() == 1 }, 10*time.Second, time.Millisecond)
	conn.Close()
	assert.Equal(t, 499, <-left)
	assert.Zero(t, l.engine.Queues.Len())
}

// TestWaitWithinWriteTimeout has requests wait behind one that is admitted late, on a
// server that would cut their answers.
func TestWaitWithinWriteTimeout(t *testing.T) {
	const timeout = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		outer := mustPolicy(l, Named("outer", Rule{Key: Everyone, Limit: 1, Algorithm: Concurrency{}}).OnRefusal(Refusal{Wait: time.Hour}))
		inner := mustPolicy(l, Named("inner", Rule{Key: Everyone, Limit: 1, Algorithm: Concurrency{}}).OnRefusal(Refusal{Wait: time.Hour}))
		held := must.Get(outer.Take(t.Context(), Request{}))(t)
		defer held.Release()
		server := &http.Server{Handler: outer.Handler(inner.Handler(nothing)), WriteTimeout: timeout}
		client, accepted := net.Pipe()
		listener := pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.conns <- accepted
		go server.Serve(listener)
		defer server.Close()
		defer client.Close()

		began := time.Now()
		fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		response := must.Get(http.ReadResponse(bufio.NewReader(client), nil))(t, "the answer is not cut")
		assert.Equal(t, 429, response.StatusCode)
		body, err := io.ReadAll(response.Body)
		assert.NoError(t, err)
		assert.Contains(t, string(body), "violated-policies")
		assert.Equal(t, timeout*9/10, time.Since(began).Round(time.Millisecond))
	})
}

// A pipeListener has connections in memory, on which deadlines follow the clock of a
// bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { close(l.closed); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestWaitsShareTheWriteTimeout checks that a second policy counts from the arrival of
// the request too.
func TestWaitsShareTheWriteTimeout(t *testing.T) {
	for window, want := range map[time.Duration]int{80 * time.Second: 204, 95 * time.Second: 429} {
		synctest.Test(t, func(t *testing.T) {
			l := New(nil, nil)
			h := http.Handler(nothing)
			for _, set := range []RuleSet{Named("inner", Global(window, 1)), Named("outer", Global(40*time.Second, 1))} {
				p := must.Get(l.Policy(set.OnRefusal(Refusal{Wait: time.Hour})))(t)
				h = p.Handler(h)
			}
			ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: 100 * time.Second})
			w, _ := patient(ctx, h, "")
			require.Equal(t, 204, w.Code)
			w, took := patient(ctx, h, "")
			assert.Equal(t, want, w.Code)
			if want == 429 {
				assert.Equal(t, 40*time.Second, took, "nine tenths are over before the inner rule admits it")
			}
		})
	}
}
