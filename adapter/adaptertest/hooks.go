package adaptertest

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// refuseHook replaces the answer to refused requests by Options.Refuse.
func (s suite) refuseHook(t *testing.T) {
	var seen atomic.Pointer[limit.Decision]
	router := s.framework(limit.New(nil, &limit.Options{
		Refuse: func(w http.ResponseWriter, r *http.Request, d limit.Decision) {
			seen.Store(&d)
			w.Header().Set("Location", "/wait?from="+r.URL.Path)
			w.WriteHeader(http.StatusSeeOther)
			w.Write([]byte("later"))
		},
	}))
	router.Handle("GET", "/busy", ok, limit.Rules(limit.Global(time.Minute, 1)))
	router.Handle("GET", "/wait", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("waiting room")) }))
	c := serve(t, router)

	require.Equal(t, http.StatusNoContent, c.send("GET", "/busy").StatusCode)
	require.Nil(t, seen.Load())
	a := c.send("GET", "/busy")
	assert.Equal(t, "waiting room", a.body, "the client follows the redirect")
	require.NotNil(t, seen.Load())
	assert.False(t, seen.Load().Allowed)
	assert.Equal(t, []string{"global-1m"}, seen.Load().Refusing())
	assert.Equal(t, "60", a.Request.Response.Header.Get("Retry-After"), "set before the function is called")
}

// refuseStatus checks that a function in Options.Refuse that does not call
// WriteHeader answers with 429.
func (s suite) refuseStatus(t *testing.T) {
	for _, body := range []string{"", "later"} {
		router := s.framework(limit.New(nil, &limit.Options{
			Refuse: func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) {
				w.Header().Set("Content-Type", "text/plain")
				if body != "" {
					w.Write([]byte(body))
				}
			},
		}))
		router.Handle("GET", "/", ok, limit.Rules(limit.Global(time.Minute, 1)))
		c := serve(t, router)

		require.Equal(t, http.StatusNoContent, c.send("GET", "/").StatusCode)
		a := c.send("GET", "/")
		assert.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		assert.Equal(t, body, a.body)
		assert.Equal(t, "text/plain", a.Header.Get("Content-Type"))
		assert.Equal(t, "60", a.Header.Get("Retry-After"))
	}
}

// failHook replaces the answer to requests that could not be decided by
// Options.Fail, which answers with 503 unless it calls WriteHeader.
func (s suite) failHook(t *testing.T) {
	for status, want := range map[int]int{0: http.StatusServiceUnavailable, http.StatusBadGateway: http.StatusBadGateway} {
		router := s.framework(limit.New(failingStore{err: errBroken}, &limit.Options{
			Log: slog.New(slog.DiscardHandler),
			Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
				assert.ErrorIs(t, err, limit.ErrUndecided)
				assert.ErrorIs(t, err, errBroken)
				w.Header().Set("Content-Type", "text/plain")
				if status != 0 {
					w.WriteHeader(status)
				}
				w.Write([]byte("no limiter"))
			},
		}))
		router.Handle("GET", "/", mustNotRun(t), limit.Rules(limit.PerIP(time.Minute, 5)))

		a := serve(t, router).send("GET", "/")
		assert.Equal(t, want, a.StatusCode)
		assert.Equal(t, "no limiter", a.body)
		assert.Equal(t, "text/plain", a.Header.Get("Content-Type"))
		assert.Equal(t, "1", a.Header.Get("Retry-After"))
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
			events <- event{r.URL.Path, d.Policy(), d.Allowed}
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
