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

// inLine is a queue of which one goes on each second, and two wait.
var inLine = limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 60, Window: time.Minute, Algorithm: limit.Queue, Burst: 2})

func do(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	return w
}

// waits sends four requests at once to a queue: three run, each at its turn.
func (s suite) waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		turns := make(chan time.Duration, 3)
		router := s.framework(limit.New(nil, nil))
		router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			turns <- time.Since(start)
			ok(w, r)
		}), inLine)

		answers := make(chan *httptest.ResponseRecorder, 3)
		for range 3 {
			go func() { answers <- do(t.Context(), router) }()
		}
		synctest.Wait()
		refused := do(t.Context(), router)
		assert.Equal(t, http.StatusTooManyRequests, refused.Code)
		assert.Equal(t, "1", refused.Header().Get("Retry-After"))
		for i := range 3 {
			assert.Equal(t, time.Duration(i)*time.Second, <-turns)
			assert.Equal(t, http.StatusNoContent, (<-answers).Code)
		}
	})
}

// gone checks that the handler never runs for a client that goes away before
// its turn, and that the next one gets it.
func (s suite) gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ran := time.Now(), 0
		router := s.framework(limit.New(nil, nil))
		router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran++
			ok(w, r)
		}), inLine)
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
	})
}

// late checks that a request whose turn is after its deadline is refused at
// once, with the time after which it would not be.
func (s suite) late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, seen := time.Now(), 0
		router := s.framework(limit.New(nil, &limit.Options{
			Observe: func(_ *http.Request, d limit.Decision, err error) {
				assert.NoError(t, err)
				if seen++; seen == 2 {
					assert.False(t, d.Allowed, "observed as it is answered")
				}
			},
		}))
		router.Handle("GET", "/", ok, inLine)
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
	})
}

// costs checks that a request spends what it costs, and that a cost that is
// none neither runs the handler nor spends anything.
func (s suite) costs(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	router.Handle("GET", "/", ok, limit.Rules(limit.Global(time.Hour, 100), limit.Rule{
		Name: "units", Key: limit.Everyone, Limit: 10, Window: time.Hour,
		Cost: func(r *http.Request) int64 {
			n, _ := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
			return n
		},
	}))
	c := serve(t, router)

	for _, test := range []struct {
		cost       string
		status     int
		retryAfter string
		rateLimit  string
	}{
		{"7", 204, "", `"global-1h";r=99;t=3600, "units";r=3;t=3600`},
		{"4", 429, "3600", `"global-1h";r=99;t=3600, "units";r=3;t=3600`},
		{"11", 429, "", `"global-1h";r=99;t=3600, "units";r=3`},
		{"9223372036854775807", 429, "", `"global-1h";r=99;t=3600, "units";r=3`},
		{"-1", 503, "1", ""},
		{"-9223372036854775808", 503, "1", ""},
		{"0", 204, "", `"global-1h";r=98;t=3600, "units";r=3;t=3600`},
		{"3", 204, "", `"global-1h";r=97;t=3600, "units";r=0;t=3600`},
	} {
		a := c.send("GET", "/", "X-Cost", test.cost)
		assert.Equal(t, test.status, a.StatusCode, test.cost)
		assert.Equal(t, test.retryAfter, a.Header.Get("Retry-After"), test.cost)
		assert.Equal(t, test.rateLimit, a.Header.Get("RateLimit"), test.cost)
		assert.NotContains(t, a.body, "cost", "clients do not learn why")
	}
}
