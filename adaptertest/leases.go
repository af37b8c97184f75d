package adaptertest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/memstore"
)

// A workshop is a route with as many slots as an odd request may hold.
type workshop struct {
	t       *testing.T
	limiter *limit.Limiter
	rules   limit.RuleSet
	entered chan *http.Request // of handlers that have begun
	router  Router
}

const slots = 3

// newWorkshop serves handlers at GET /work, by what they are told.
func (s suite) newWorkshop(t *testing.T) *workshop {
	w := &workshop{t: t, limiter: limit.New(nil, nil), entered: make(chan *http.Request, 100),
		// Nobody waits for a lease to end by itself.
		rules: limit.Named("work", limit.Rule{Key: limit.Everyone, Limit: slots, Window: time.Hour, Algorithm: limit.Concurrency})}
	w.router = s.framework(w.limiter)
	w.router.Handle("GET", "/work", http.HandlerFunc(w.work), w.rules)
	return w
}

func (w *workshop) work(rw http.ResponseWriter, r *http.Request) {
	w.entered <- r
	switch r.Header.Get("How") {
	case "panic":
		panic(http.ErrAbortHandler)
	case "panic late":
		rw.WriteHeader(http.StatusOK)
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "wait":
		<-r.Context().Done()
	case "write":
		for r.Context().Err() == nil {
			rw.Write(make([]byte, 1<<16))
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

func (w *workshop) left() int64 {
	policy, err := w.limiter.Policy(w.rules)
	require.NoError(w.t, err)
	d, err := policy.Peek(w.t.Context(), limit.Request{})
	require.NoError(w.t, err)
	return d.Rules()[0].Remaining
}

// allFree waits until every slot is back, as it is when no handler runs.
func (w *workshop) allFree(how string) {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for w.left() < slots {
		select {
		case <-deadline:
			w.t.Fatalf("%s: %d of %d slots are back", how, w.left(), slots)
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *workshop) serve(http2 bool) *httptest.Server {
	server := httptest.NewUnstartedServer(w.router)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	w.t.Cleanup(server.Close)
	return server
}

// leases holds slots as long as handlers run, and no longer.
func (s suite) leases(t *testing.T) {
	w := s.newWorkshop(t)
	server := w.serve(false)
	c := client{t, server.URL}
	for range 2 * slots {
		a := c.send("GET", "/work")
		require.Equal(t, http.StatusNoContent, a.StatusCode)
		assert.Equal(t, `"global-concurrency";q=3;qu="concurrent-requests"`, a.Header.Get("RateLimit-Policy"))
		w.allFree("a handler that returns")
		<-w.entered
	}

	ctx, cancel := context.WithCancel(t.Context())
	for range slots {
		go get(ctx, server.Client(), server.URL, "wait")
		<-w.entered
	}
	require.Zero(t, w.left())
	a := c.send("GET", "/work")
	p := requireProblem(t, a, http.StatusTooManyRequests)
	assert.Equal(t, []string{"global-concurrency"}, p.Violated)
	require.Zero(t, w.left(), "a refused request releases nothing")
	cancel()
	w.allFree("clients that go away")
	assert.Equal(t, http.StatusNoContent, c.send("GET", "/work").StatusCode)
}

func get(ctx context.Context, client *http.Client, url, how string) error {
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/work", nil)
	if err != nil {
		return err
	}
	r.Header.Set("How", how)
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// leasesOfBrokenRequests ends requests in every way that HTTP/1 and HTTP/2 know,
// often enough to use up the slots if each kept one.
func (s suite) leasesOfBrokenRequests(t *testing.T) {
	for _, protocol := range []struct {
		name  string
		http2 bool
		hows  []string
	}{
		{"HTTP/1", false, []string{"panic", "panic late", "wait", "write", "hijack"}},
		{"HTTP/2", true, []string{"panic", "panic late", "wait", "write"}}, // cancelling resets the stream
	} {
		w := s.newWorkshop(t)
		server := w.serve(protocol.http2)
		for _, how := range protocol.hows {
			for range 2 * slots {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- get(ctx, server.Client(), server.URL, how) }()
				r := <-w.entered
				require.Equal(t, protocol.http2, r.ProtoMajor == 2)
				if how == "wait" || how == "write" {
					cancel()
				}
				require.Error(t, <-done, how)
				cancel()
				w.allFree(protocol.name + ", " + how)
			}
		}
		require.NoError(t, get(t.Context(), server.Client(), server.URL, ""))
	}
}

// leasesOfClosedConnections closes the connections of clients without a word,
// some in the middle of a request.
func (s suite) leasesOfClosedConnections(t *testing.T) {
	w := s.newWorkshop(t)
	server := w.serve(false)
	for i := range 2 * slots {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		head := "GET /work HTTP/1.1\r\nHost: localhost\r\nHow: wait\r\n"
		if i%2 == 0 {
			head += "Content-Length: 10\r\n" // of which none comes
		}
		_, err = io.WriteString(conn, head+"\r\n")
		require.NoError(t, err)
		r := <-w.entered
		if i%2 == 0 {
			go io.Copy(io.Discard, r.Body) // or net/http does not look at the connection
		}
		require.NoError(t, conn.(*net.TCPConn).SetLinger(0)) // a reset
		conn.Close()
		w.allFree("a connection that is reset")
	}
}

// leasesOfWaiting has clients go away while they wait for a turn, or be too late
// for it: they hold a slot meanwhile, and none after.
func (s suite) leasesOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limit.New(nil, nil)
		rules := limit.Named("both", limit.Concurrent(limit.Everyone, 2),
			limit.Rule{Name: "line", Key: limit.Everyone, Limit: 1, Window: time.Minute, Algorithm: limit.Queue, Burst: 9})
		policy, err := limiter.Policy(rules)
		require.NoError(t, err)
		left := func() int64 {
			d, err := policy.Peek(t.Context(), limit.Request{})
			require.NoError(t, err)
			return d.Rules()[0].Remaining
		}
		router := s.framework(limiter)
		router.Handle("GET", "/", ok, rules)
		require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
		require.EqualValues(t, 2, left())

		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan int)
		for range 2 {
			go func() { answered <- do(ctx, router).Code }()
		}
		synctest.Wait()
		require.Zero(t, left(), "who waits is under way")
		require.Equal(t, http.StatusTooManyRequests, do(t.Context(), router).Code)
		cancel()
		assert.Equal(t, []int{499, 499}, []int{<-answered, <-answered})
		assert.EqualValues(t, 2, left())

		hurried, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		late := do(hurried, router)
		assert.Equal(t, http.StatusTooManyRequests, late.Code)
		assert.Contains(t, late.Body.String(), `"violated-policies":["line"]`)
		assert.EqualValues(t, 2, left())
	})
}

// lostLeases tells a handler that what it holds is lost, and Observe when it has
// returned.
func (s suite) lostLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		var losses []error
		limiter := limit.New(store, &limit.Options{Observe: func(r *http.Request, d limit.Decision, err error) {
			if err != nil {
				assert.Equal(t, "/report", r.URL.Path)
				assert.True(t, d.Allowed)
				losses = append(losses, err)
			}
		}})
		router := s.framework(limiter)
		work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("How") == "lose" {
				assert.NoError(t, store.Reset(r.Context(), "reports", "global-concurrency", ""))
			}
			select {
			case <-limit.Lost(r.Context()):
				assert.Empty(t, losses, "the request has not ended")
				w.WriteHeader(http.StatusServiceUnavailable)
			case <-time.After(time.Minute):
				w.WriteHeader(http.StatusNoContent)
			}
		})
		router.Handle("GET", "/report", work, limit.Named("reports", limit.Concurrent(limit.Everyone, 1)))
		router.Handle("GET", "/list", work, limit.Named("lists", limit.Global(time.Hour, 10)))
		get := func(path, how string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("How", how)
			router.ServeHTTP(w, r)
			return w.Code
		}
		assert.Equal(t, http.StatusNoContent, get("/report", "hold"))
		assert.Empty(t, losses)
		assert.Equal(t, http.StatusServiceUnavailable, get("/report", "lose"))
		require.Len(t, losses, 1)
		assert.ErrorIs(t, losses[0], limit.ErrLeaseLost)
		assert.Equal(t, http.StatusNoContent, get("/report", "hold"), "the next one holds again")
		assert.Equal(t, http.StatusNoContent, get("/list", "lose"), "without leases there is nothing to lose")
		assert.Len(t, losses, 1)
	})
}
