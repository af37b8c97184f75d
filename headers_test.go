package limit_test

import (
	"fmt"
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

// TestJitter holds that what clients are told is never too early, is spread evenly, and
// is the same in the header and in the body.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jitter = 9 // s
		limiter := limit.New(nil, &limit.Options{Jitter: jitter * time.Second})
		h := limiter.Limit(limit.Rules(limit.Global(time.Hour, 1)))(http.NotFoundHandler())
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		start, told := time.Now(), make(map[int]int)
		const refusals = 10_000
		for range refusals {
			time.Sleep(time.Microsecond)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			require.NoError(t, err)
			require.Contains(t, w.Body.String(), fmt.Sprintf("Try again in %d s.", seconds))
			early := (time.Hour - time.Since(start) - time.Duration(seconds)*time.Second)
			require.LessOrEqual(t, early, time.Duration(0))
			told[seconds-3600]++
		}
		require.Len(t, told, jitter+1, "%v", told)
		for seconds := 1; seconds <= jitter; seconds++ {
			assert.InDelta(t, refusals/jitter, told[seconds], refusals/jitter/10, "%v", told)
		}
	})
	for _, jitter := range []time.Duration{-1, 24*time.Hour + 1} {
		assert.PanicsWithError(t, fmt.Sprintf("limit: Jitter %v: write 0 to 24h0m0s", jitter), func() {
			limit.New(nil, &limit.Options{Jitter: jitter})
		})
	}
	assert.NotPanics(t, func() { limit.New(nil, &limit.Options{Jitter: 24 * time.Hour}) })
}
