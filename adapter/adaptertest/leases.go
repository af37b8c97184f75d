package adaptertest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/stores/memstore"
)

// A slotRoute is a route with slots, GET /work. The header How says what its handler
// does.
type slotRoute struct {
	t       *testing.T
	limiter *limit.Limiter
	rules   limit.RuleSet
	entered chan *http.Request // of handlers that have begun
	router  Router
}

const slots = 3

func (s suite) newSlotRoute(t *testing.T) *slotRoute {
	w := &slotRoute{t: t, limiter: limit.New(nil, nil), entered: make(chan *http.Request, 100),
		// No lease expires during a test.
		rules: limit.Named("work", limit.Rule{Key: limit.Everyone, Limit: slots, Window: time.Hour, Algorithm: limit.Concurrency{}})}
	w.router = s.framework(w.limiter)
	w.router.Handle("GET", "/work", http.HandlerFunc(w.work), w.rules)
	return w
}

func (w *slotRoute) work(rw http.ResponseWriter, r *http.Request) {
	w.entered <- r
	switch r.Header.Get("How") {
	case "panic":
		panic(http.ErrAbortHandler)
	case "panic late":
		rw.WriteHeader(http.StatusOK)
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "wait":
		ended(r)
	case "write":
		for r.Context().Err() == nil {
			if _, err := rw.Write(make([]byte, 1<<16)); err != nil {
				ended(r)
				return
			}
		}
	case "hijack":
		conn, _, err := rw.(http.Hijacker).Hijack()
		if assert.NoError(w.t, err) {
			conn.Close()
		}
	default:
		rw.WriteHeader(http.StatusNoContent)
	}
}

// ended waits until the client has left, but no longer than receive does.
func ended(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(time.Minute):
	}
}

func (w *slotRoute) left() int64 { return left(w.t, w.limiter, w.rules) }

// allFree waits until every slot is free, as it is when no handler runs.
func (w *slotRoute) allFree(how string) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); w.left() < slots; time.Sleep(time.Millisecond) {
		require.True(w.t, time.Now().Before(end), "%s: %d of %d slots are free", how, w.left(), slots)
	}
}

// leases checks that a request holds its slot while its handler runs, and no longer.
func (s suite) leases(t *testing.T) {
	w := s.newSlotRoute(t)
	c := serve(t, w.router)
	for range 2 * slots {
		a := c.send("GET", "/work")
		require.Equal(t, http.StatusNoContent, a.StatusCode)
		assert.Equal(t, `"global-concurrency";q=3;qu="concurrent-requests"`, a.Header.Get("RateLimit-Policy"))
		w.allFree("a handler that returns")
		receive(t, w.entered)
	}

	ctx, cancel := context.WithCancel(t.Context())
	for range slots {
		go c.try(ctx, "GET", "/work", nil, "How", "wait")
		receive(t, w.entered)
	}
	require.Zero(t, w.left())
	a := c.send("GET", "/work")
	p := requireProblem(t, a, http.StatusTooManyRequests)
	assert.Equal(t, []string{"global-concurrency"}, p.Violated)
	require.Zero(t, w.left(), "a refused request releases nothing")
	cancel()
	w.allFree("clients that disconnect")
	assert.Equal(t, http.StatusNoContent, c.send("GET", "/work").StatusCode)
}

// leasesOfBrokenRequests ends requests in every way that HTTP/1 and HTTP/2 know,
// often enough to use up the slots if each kept its own.
func (s suite) leasesOfBrokenRequests(t *testing.T) {
	for _, protocol := range []struct {
		name  string
		http2 bool
		hows  []string
	}{
		{"HTTP/1", false, []string{"panic", "panic late", "wait", "write", "hijack"}},
		{"HTTP/2", true, []string{"panic", "panic late", "wait", "write"}}, // canceling resets the stream
	} {
		w := s.newSlotRoute(t)
		c := clientOf(t, start(t, w.router, protocol.http2))
		for _, how := range protocol.hows {
			for range 2 * slots {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := c.try(ctx, "GET", "/work", nil, "How", how)
					done <- err
				}()
				r := receive(t, w.entered)
				require.Equal(t, protocol.http2, r.ProtoMajor == 2)
				if how == "wait" || how == "write" {
					cancel()
				}
				require.Error(t, receive(t, done), how)
				cancel()
				w.allFree(protocol.name + ", " + how)
			}
		}
		c.send("GET", "/work")
	}
}

// leasesOfClosedConnections resets the connections of clients, some in the middle
// of a request.
func (s suite) leasesOfClosedConnections(t *testing.T) {
	w := s.newSlotRoute(t)
	server := start(t, w.router, false)
	for i := range 2 * slots {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		head := "GET /work HTTP/1.1\r\nHost: localhost\r\nHow: wait\r\n"
		if i%2 == 0 {
			head += "Content-Length: 10\r\n" // of a body that does not come
		}
		_, err = io.WriteString(conn, head+"\r\n")
		require.NoError(t, err)
		r := receive(t, w.entered)
		if i%2 == 0 {
			go io.Copy(io.Discard, r.Body) // or net/http does not look at the connection
		}
		require.NoError(t, conn.(*net.TCPConn).SetLinger(0)) // a reset
		conn.Close()
		w.allFree("a connection that is reset")
	}
}

// leasesOfWaiting has clients disconnect while they wait in a queue, or be refused by
// it: they hold a lease while they wait, and none afterwards.
func (s suite) leasesOfWaiting(t *testing.T) {
	limiter := limit.New(nil, nil)
	rules := limit.Named("both", limit.Rule{Key: limit.Everyone, Limit: 2, Algorithm: limit.Concurrency{}},
		limit.Rule{Name: "queue", Key: limit.Everyone, Limit: 1, Window: time.Minute, Algorithm: limit.Queue{Burst: 9}})
	router := s.one(limiter, ok, rules)
	require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
	require.EqualValues(t, 2, left(t, limiter, rules))

	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan int)
	for range 2 {
		go func() { answered <- do(ctx, router).Code }()
	}
	synctest.Wait()
	require.Zero(t, left(t, limiter, rules), "a request that waits holds a lease")
	require.Equal(t, http.StatusTooManyRequests, do(t.Context(), router).Code)
	cancel()
	assert.Equal(t, []int{499, 499}, []int{<-answered, <-answered})
	assert.EqualValues(t, 2, left(t, limiter, rules))

	hurried, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	late := do(hurried, router)
	assert.Equal(t, http.StatusTooManyRequests, late.Code)
	assert.Contains(t, late.Body.String(), `"violated-policies":["queue"]`)
	assert.EqualValues(t, 2, left(t, limiter, rules))
}

// lostLeases checks that a handler learns that its lease is lost, and Observe after
// the handler has returned.
func (s suite) lostLeases(t *testing.T) {
	store := memstore.New(nil)
	var losses []error
	limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler), Observe: func(r *http.Request, d limit.Decision, err error) {
		if err != nil {
			assert.Equal(t, "/report", r.URL.Path)
			assert.True(t, d.Allowed)
			losses = append(losses, err)
		}
	}})
	router := s.framework(limiter)
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("How") == "lose" {
			assert.NoError(t, store.Reset(r.Context(), []core.Charge{{Policy: "reports", Rule: "global-concurrency"}}))
		}
		select {
		case <-limit.DecisionFrom(r.Context()).Lost():
			assert.Empty(t, losses, "the request has not ended")
			w.WriteHeader(http.StatusServiceUnavailable)
		case <-time.After(time.Minute):
			w.WriteHeader(http.StatusNoContent)
		}
	})
	router.Handle("GET", "/report", work, limit.Named("reports", limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}}))
	router.Handle("GET", "/list", work, limit.Named("lists", limit.Global(time.Hour, 10)))
	get := func(path, how string) int { return routetest.Do(router, "GET", path, "How", how).Code }
	assert.Equal(t, http.StatusNoContent, get("/report", "hold"))
	assert.Empty(t, losses)
	assert.Equal(t, http.StatusServiceUnavailable, get("/report", "lose"))
	require.Len(t, losses, 1)
	assert.ErrorIs(t, losses[0], limit.ErrLeaseLost)
	assert.Equal(t, http.StatusNoContent, get("/report", "hold"), "the next request holds a lease again")
	assert.Equal(t, http.StatusNoContent, get("/list", "lose"), "a request without leases loses none")
	assert.Len(t, losses, 1)
}
