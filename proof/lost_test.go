package proof

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
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
	"github.com/routelimit/limit/stores/redisstore"
)

// longLife is the life of leases that a busy machine does not lose.
const longLife = 3 * time.Second

var working = limit.Named("work", limit.Rule{Name: "slots", Key: limit.Everyone,
	Limit: slots, Window: longLife, Algorithm: limit.Concurrency{}})

// A workplace runs as many handlers as there are slots, until each is notified that its
// lease is lost, or until the end.
type workplace struct {
	limiter *limit.Limiter
	entered chan struct{}
	lost    chan time.Time
	end     chan struct{}
	done    sync.WaitGroup

	mu       sync.Mutex
	observed int
}

func newWorkplace(store core.Store, instances int) *workplace {
	w := &workplace{entered: make(chan struct{}, slots), lost: make(chan time.Time, slots), end: make(chan struct{})}
	w.limiter = limit.New(store, &limit.Options{Instances: instances, Observe: func(_ *http.Request, _ limit.Decision, err error) {
		if errors.Is(err, limit.ErrLeaseLost) {
			w.mu.Lock()
			w.observed++
			w.mu.Unlock()
		}
	}})
	return w
}

// start starts the requests, and returns when all handlers are running.
func (w *workplace) start() {
	handler := w.limiter.Limit(working)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.entered <- struct{}{}
		select {
		case <-limit.DecisionFrom(r.Context()).Lost():
			w.lost <- time.Now()
		case <-w.end:
		}
	}))
	for range slots {
		w.done.Go(func() { serveOnce(handler) })
	}
	for range slots {
		<-w.entered
	}
}

// serveOnce repeats a request until it is admitted. On a busy machine Redis may time
// out, and the local share refuse.
func serveOnce(handler http.Handler) {
	for {
		answer := routetest.Do(handler, "GET", "/")
		if answer.Code != http.StatusTooManyRequests {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// finish ends the requests, and returns the number of losses that were observed.
func (w *workplace) finish() int {
	close(w.end)
	w.done.Wait()
	return w.observed
}

// free reports whether a slot is free.
func free(t *testing.T, limiter *limit.Limiter) bool {
	d := must.Get(bind(limiter, working).Take(t.Context(), limit.Request{}))(t)
	d.Release()
	return d.Allowed
}

// TestLostLeases runs handlers for three times the life of their leases, while the
// leases end in every possible way. Each handler is notified. A single process is not:
// it has counted its leases all the time, so that they are not lost.
func TestLostLeases(t *testing.T) {
	key := redisKey("limit", "work", "slots", "")
	for _, fault := range []struct {
		name      string
		instances int
		begin     func(*redistest.Server, *faultproxy.Proxy)
		end       func(*redistest.Server, *faultproxy.Proxy)
		lost      bool
	}{
		{"the key deleted", 1, func(s *redistest.Server, _ *faultproxy.Proxy) { s.Client().Del(t.Context(), key) }, nil, true},
		{"the key deleted, of two instances", 2, func(s *redistest.Server, _ *faultproxy.Proxy) { s.Client().Del(t.Context(), key) }, nil, true},
		{"cut off, of two instances", 2, func(_ *redistest.Server, p *faultproxy.Proxy) { p.Refuse(true) },
			func(_ *redistest.Server, p *faultproxy.Proxy) { p.Refuse(false) }, true},
		{"cut off, alone", 1, func(_ *redistest.Server, p *faultproxy.Proxy) { p.Refuse(true) },
			func(_ *redistest.Server, p *faultproxy.Proxy) { p.Refuse(false) }, false},
		{"Redis paused, of two instances", 2, func(s *redistest.Server, _ *faultproxy.Proxy) { s.Pause() },
			func(s *redistest.Server, _ *faultproxy.Proxy) { s.Resume() }, true},
		{"Redis killed, and back empty, of two instances", 2, func(s *redistest.Server, _ *faultproxy.Proxy) { s.Kill() },
			func(s *redistest.Server, _ *faultproxy.Proxy) { s.Restart() }, true},
		{"Redis killed, and back empty, alone", 1, func(s *redistest.Server, _ *faultproxy.Proxy) { s.Kill() },
			func(s *redistest.Server, _ *faultproxy.Proxy) { s.Restart() }, false},
		{"nothing", 2, func(*redistest.Server, *faultproxy.Proxy) {}, nil, false},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Launch(t)
			proxy := faultproxy.Start(t, server.Addr)
			client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
			store, instances := core.Store(redisstore.New(client, nil)), fault.instances
			if fault.end == nil { // a process that meets an outage keeps its leases
				store, instances = unhurried(client, instances), 0 // its guard knows how many
			}
			w := newWorkplace(store, instances)
			w.start()
			began := time.Now()
			fault.begin(server, proxy)
			var notified []time.Duration
			if fault.lost {
				for len(notified) < slots {
					select {
					case at := <-w.lost:
						notified = append(notified, at.Sub(began))
					case <-time.After(time.Minute):
						t.Fatalf("only %d of %d were notified", len(notified), slots)
					}
				}
			} else {
				time.Sleep(3 * longLife)
			}
			if fault.end != nil {
				fault.end(server, proxy)
			}
			if !fault.lost {
				time.Sleep(longLife) // renewals by a store that is back
				assert.Empty(t, w.lost)
				assert.False(t, free(t, w.limiter))
			}
			observed := w.finish()
			slices.Sort(notified)
			if fault.lost {
				t.Logf("%d of %d notified, after %v to %v of a life of %v; observed %d", len(notified), slots,
					notified[0].Round(time.Millisecond), notified[slots-1].Round(time.Millisecond), longLife, observed)
				assert.Equal(t, slots, observed)
			} else {
				t.Logf("0 of %d notified, observed %d", slots, observed)
				assert.Zero(t, observed)
			}
		})
	}
}

const loserVar = "LIMIT_PROOF_LOSER" // the URL of Redis, in a process that is paused

// lose is the main function of a process that is paused while it holds all leases. It
// reports when it holds them, and when it is notified of their loss.
func lose(url string) {
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	w := newWorkplace(redisstore.New(redis.NewClient(options), nil), 2)
	w.start()
	fmt.Println("all held")
	for range slots {
		<-w.lost
	}
	fmt.Println("all lost, observed", w.finish())
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// TestLostByPausedProcess pauses a process for three times the life of its leases.
// Another process has taken its slots when it resumes, and it is notified.
func TestLostByPausedProcess(t *testing.T) {
	client := redistest.Real(t)
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), fmt.Sprintf("%s=redis://%s/%d", loserVar, client.Options().Addr, client.Options().DB))
	p.Stderr = os.Stderr
	must.Get(p.StdinPipe())(t)
	out := must.Get(p.StdoutPipe())(t)
	require.NoError(t, p.Start())
	defer func() {
		p.Process.Kill()
		p.Wait()
	}()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "all held", lines.Text())
	other := limit.New(redisstore.New(client, nil), &limit.Options{Instances: 2})
	require.False(t, free(t, other))

	redistest.Pause(t, p.Process)
	stopped := time.Now()
	until(t, "the slots of the paused process", func() bool {
		d := must.Get(bind(other, working).Take(t.Context(), limit.Request{Cost: slots}))(t)
		if d.Allowed {
			t.Cleanup(d.Release)
		}
		return d.Allowed
	})
	time.Sleep(time.Until(stopped.Add(3 * longLife)))
	redistest.Resume(t, p.Process)
	went := time.Now()
	require.True(t, lines.Scan())
	t.Logf("%s, %v after it went on", lines.Text(), time.Since(went).Round(time.Millisecond))
	require.Equal(t, fmt.Sprintf("all lost, observed %d", slots), strings.TrimSpace(lines.Text()))
	require.False(t, free(t, other), "and has not ended the leases of the other one")
}
