package adaptertest

import (
	"cmp"
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
	"github.com/routelimit/limit/internal/routetest"
)

// hooks replaces the answers to requests that are not admitted. A function that does not
// call WriteHeader answers with the status of the answer that it replaces.
func (s suite) hooks(t *testing.T) {
	for _, test := range []struct {
		name       string
		limiter    func(limit.Options) *limit.Limiter
		status     int
		retryAfter string
		admitted   int
	}{
		{"refused", func(o limit.Options) *limit.Limiter { return limit.New(nil, &o) }, http.StatusTooManyRequests, "60", 1},
		{"barred", screening, http.StatusForbidden, "91", 0},
		{"undecided", func(o limit.Options) *limit.Limiter { return limit.New(failingStore{err: errBroken}, &o) },
			http.StatusServiceUnavailable, "1", 0},
	} {
		for _, set := range []struct {
			status int
			body   string
		}{{0, ""}, {0, "later"}, {http.StatusBadGateway, "later"}, {http.StatusNotFound, "no"}, {http.StatusSeeOther, "elsewhere"}} {
			ran, replaced := 0, ""
			answer := func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/plain")
				if set.status != 0 {
					w.WriteHeader(set.status)
				}
				if set.body != "" {
					w.Write([]byte(set.body))
				}
			}
			c := serve(t, s.one(test.limiter(limit.Options{
				Log: slog.New(slog.DiscardHandler),
				Refuse: func(w http.ResponseWriter, _ *http.Request, d limit.Decision) {
					replaced = "refused"
					if d.Mode == core.ModeBarred {
						replaced = "barred"
					} else {
						assert.Equal(t, []string{"global-1m"}, routetest.Refused(d))
					}
					assert.False(t, d.Allowed)
					assert.Equal(t, test.retryAfter, w.Header().Get("Retry-After"), "set before the function is called")
					answer(w)
				},
				Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
					assert.ErrorIs(t, err, limit.ErrUndecided)
					assert.ErrorIs(t, err, errBroken)
					replaced = "undecided"
					answer(w)
				},
			}), counting(&ran), limit.Rules(limit.Global(time.Minute, 1))))

			c.send("GET", "/", "X-Bar", "a while") // the first of two is admitted, if any is
			a := c.send("GET", "/", "X-Bar", "a while")
			assert.Equal(t, test.name, replaced)
			assert.Equal(t, test.admitted, ran)
			assert.Equal(t, cmp.Or(set.status, test.status), a.StatusCode, test.name)
			assert.Equal(t, set.body, a.body, test.name)
			assert.Equal(t, "text/plain", a.Header.Get("Content-Type"), test.name)
			assert.Equal(t, test.retryAfter, a.Header.Get("Retry-After"), test.name)
		}
	}
}

// observe checks that Options.Observe is called once for each decision.
func (s suite) observe(t *testing.T) {
	type event struct {
		path, policy string
		allowed      bool
	}
	events := make(chan event, 3)
	router := s.framework(limit.New(nil, &limit.Options{
		Observe: func(r *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			events <- event{r.URL.Path, d.Policy, d.Allowed}
		},
	}))
	router.Handle("GET", "/seen", ok, limit.Named("seen", limit.Global(time.Minute, 1)))
	router.Handle("GET", "/free", ok)
	c := serve(t, router)

	c.send("GET", "/seen")
	c.send("GET", "/free")
	c.send("GET", "/seen")
	require.Len(t, events, 2, "once for each decision")
	assert.Equal(t, event{"/seen", "seen", true}, <-events)
	assert.Equal(t, event{"/seen", "seen", false}, <-events)
}

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

// requireUndecided requires the answer to a request that was not decided.
func requireUndecided(t *testing.T, a answer) {
	t.Helper()
	p := requireProblem(t, a, http.StatusServiceUnavailable)
	assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", p.Type)
	assert.Equal(t, "1", a.Header.Get("Retry-After"))
	for _, cause := range []string{"disk", "dial"} {
		assert.NotContains(t, a.body, cause, "clients do not learn why")
	}
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
	requireUndecided(t, a)
	assert.Empty(t, a.Header.Get("RateLimit"))
	assert.Empty(t, a.Header.Get("X-RateLimit-Limit"))
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
		requireUndecided(t, c.send("GET", "/refuse"))
	}
	require.Len(t, modes, 9)
	for i, mode := range modes {
		assert.Equal(t, []core.Mode{core.ModeLocal, core.ModeAllowed, core.ModeRefused}[i%3], mode, i)
	}
}
