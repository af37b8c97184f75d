package adaptertest

import (
	"context"
	"log/slog"
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

// leasesOfWaiting has clients disconnect while they wait in a queue, or be refused by
// it: they hold a lease while they wait, and none afterwards.
func (s suite) leasesOfWaiting(t *testing.T) {
	limiter := limit.New(nil, nil)
	rules := limit.Named("both", limit.Concurrent(limit.Everyone, 2),
		limit.Rule{Name: "queue", Key: limit.Everyone, Limit: 1, Window: time.Minute, Algorithm: limit.Queue{Burst: 9}})
	router := s.framework(limiter)
	router.Handle("GET", "/", ok, rules)
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
	router.Handle("GET", "/report", work, limit.Named("reports", limit.Concurrent(limit.Everyone, 1)))
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
