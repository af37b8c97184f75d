package adaptertest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

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
