package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// failingStore is a store that fails with an error.
type failingStore struct {
	core.Store
	err error
}

func (f failingStore) Take(context.Context, []core.Ask) error {
	return f.err
}

var errBroken = errors.New("the disk is full")

// mustNotRun returns a handler that requests do not reach.
func mustNotRun(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs uncounted") })
}

// storeFails checks the answer to a request that the store could not decide.
func (s suite) storeFails(t *testing.T) {
	var observed atomic.Int32
	router := s.framework(limit.New(failingStore{err: errBroken}, &limit.Options{
		Log:     slog.New(slog.DiscardHandler),
		Headers: limit.Draft11 | limit.XRateLimit,
		Refuse: func(http.ResponseWriter, *http.Request, limit.Decision) {
			t.Error("a request that could not be decided is not a refused one")
		},
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			observed.Add(1)
			assert.ErrorIs(t, err, limit.ErrUndecided)
			assert.ErrorIs(t, err, errBroken)
			assert.False(t, d.Allowed)
		},
	}))
	router.Handle("GET", "/", mustNotRun(t), limit.Rules(limit.PerIP(time.Minute, 5)))
	c := serve(t, router)

	a := c.send("GET", "/")
	p := requireProblem(t, a, http.StatusServiceUnavailable)
	assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", p.Type)
	assert.Equal(t, "1", a.Header.Get("Retry-After"))
	assert.Empty(t, a.Header.Get("RateLimit"))
	assert.Empty(t, a.Header.Get("X-RateLimit-Limit"))
	assert.NotContains(t, a.body, "disk", "clients do not learn why")
	assert.EqualValues(t, 1, observed.Load())
}

// unavailable checks what each choice in Rule.OnStoreError means to clients while
// the store is unavailable.
func (s suite) unavailable(t *testing.T) {
	var modes []core.Mode
	router := s.framework(limit.New(failingStore{err: fmt.Errorf("dial tcp: i/o timeout: %w", core.ErrUnavailable)}, &limit.Options{
		Log: slog.New(slog.DiscardHandler),
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			modes = append(modes, d.Mode)
		},
	}))
	rule := func(on core.OnError) limit.RuleSet {
		return limit.Rules(limit.Rule{Key: limit.ByIP, Limit: 2, Window: time.Hour, OnStoreError: on})
	}
	router.Handle("GET", "/local", ok, rule(limit.Local))
	router.Handle("GET", "/allow", ok, rule(limit.Allow))
	router.Handle("GET", "/refuse", mustNotRun(t), rule(limit.Refuse))
	c := serve(t, router)

	for _, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusTooManyRequests} {
		require.Equal(t, want, c.send("GET", "/local").StatusCode)
		require.Equal(t, http.StatusNoContent, c.send("GET", "/allow").StatusCode)
		a := c.send("GET", "/refuse")
		p := requireProblem(t, a, http.StatusServiceUnavailable)
		assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", p.Type)
		assert.Equal(t, "1", a.Header.Get("Retry-After"))
		assert.NotContains(t, a.body, "dial", "clients do not learn why")
	}
	require.Len(t, modes, 9)
	for i, mode := range modes {
		assert.Equal(t, []core.Mode{core.ModeLocal, core.ModeAllowed, core.ModeRefused}[i%3], mode, i)
	}
}
