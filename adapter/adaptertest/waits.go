package adaptertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// queue admits a request each second, and keeps two waiting.
var queue = limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 60, Window: time.Minute, Algorithm: limit.Queue{Burst: 2}})

// do sends GET / to a handler, without a server.
func do(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	return w
}

// waits sends four requests at once to a queue: three run, each at its slot.
func (s suite) waits(t *testing.T) {
	start := time.Now()
	slots := make(chan time.Duration, 3)
	router := s.framework(limit.New(nil, nil))
	router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slots <- time.Since(start)
		ok(w, r)
	}), queue)

	answers := make(chan *httptest.ResponseRecorder, 3)
	for range 3 {
		go func() { answers <- do(t.Context(), router) }()
	}
	synctest.Wait()
	refused := do(t.Context(), router)
	assert.Equal(t, http.StatusTooManyRequests, refused.Code)
	assert.Equal(t, "1", refused.Header().Get("Retry-After"))
	for i := range 3 {
		assert.Equal(t, time.Duration(i)*time.Second, <-slots)
		assert.Equal(t, http.StatusNoContent, (<-answers).Code)
	}
}

// disconnects checks that the handler does not run for a client that disconnects
// before its slot, and that the next client gets the slot.
func (s suite) disconnects(t *testing.T) {
	start, ran := time.Now(), 0
	router := s.one(limit.New(nil, nil), counting(&ran), queue)
	require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second/2, cancel)
	w := do(ctx, router)
	assert.Equal(t, 499, w.Code)
	assert.Empty(t, w.Header().Get("Retry-After"))
	assert.Equal(t, time.Second/2, time.Since(start))
	assert.Equal(t, 1, ran)

	assert.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
	assert.Equal(t, time.Second, time.Since(start))
	assert.Equal(t, 2, ran)
}

// late checks that a request is refused at once if its slot is after its deadline,
// with the time after which it would be admitted.
func (s suite) late(t *testing.T) {
	start, seen := time.Now(), 0
	router := s.framework(limit.New(nil, &limit.Options{
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			if seen++; seen == 2 {
				assert.False(t, d.Allowed, "Observe sees the answer")
			}
		},
	}))
	router.Handle("GET", "/", ok, queue)
	require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)

	hurried := func() *httptest.ResponseRecorder {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return do(ctx, router)
	}
	w := hurried()
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Contains(t, w.Body.String(), `"violated-policies":["global-1m"]`)
	assert.Equal(t, []string{`"global-1m";r=2;t=1`}, w.Header()["Ratelimit"])
	assert.Zero(t, time.Since(start))
	wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.Equal(t, 1, wait)

	time.Sleep(time.Duration(wait) * time.Second)
	assert.Equal(t, http.StatusNoContent, hurried().Code)
}

// waitsForRoom has refused requests wait, before a group and before a route, and sends
// away the one that waited in vain.
func (s suite) waitsForRoom(t *testing.T) {
	start := time.Now()
	limiter, outcomes := observed(t)
	router := s.framework(limiter)
	patient := limit.Refusal{Wait: 3 * time.Second, Redirect: "/busy"}
	router.Use(limit.Named("all", limit.Global(time.Second, 1)).OnRefusal(patient))
	var ran []time.Duration
	router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = append(ran, time.Since(start))
		ok(w, r)
	}), limit.Rules(limit.Global(2*time.Second, 1)).OnRefusal(patient))

	require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
	w := do(t.Context(), router) // a second for each rule
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.Equal(t, []time.Duration{0, 2 * time.Second}, ran)
	assert.Equal(t, []string{"admitted", "admitted", "admitted", "admitted"}, *outcomes)

	hurried, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	w = do(hurried, router)
	assert.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/busy", w.Header().Get("Location"))
	assert.Equal(t, "2", w.Header().Get("Retry-After"))
	assert.Equal(t, "redirected", (*outcomes)[len(*outcomes)-1])
}

// leavesWhileWaiting checks that a request whose client leaves is charged nothing.
func (s suite) leavesWhileWaiting(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	ran := 0
	router.Handle("GET", "/", counting(&ran), limit.Rules(limit.Global(10*time.Second, 2)).OnRefusal(limit.Refusal{Wait: time.Minute}))
	for range 2 {
		require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	start := time.Now()
	assert.Equal(t, 499, do(ctx, router).Code)
	assert.Equal(t, time.Second, time.Since(start))
	for range 2 {
		assert.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
	}
	assert.Equal(t, 10*time.Second, time.Since(start).Round(time.Millisecond))
	assert.Equal(t, 4, ran)
}
