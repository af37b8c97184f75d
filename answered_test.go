package limit_test

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/routetest"
)

// A gzipWriter is that of a gzip middleware, in short.
type gzipWriter struct {
	http.ResponseWriter
	gzip *gzip.Writer
}

func (w *gzipWriter) WriteHeader(status int) {
	w.Header().Set("Content-Encoding", "gzip")
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) { return w.gzip.Write(p) }

func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z := gzip.NewWriter(w)
		defer z.Close()
		next.ServeHTTP(&gzipWriter{w, z}, r)
	})
}

// TestSettlesByTheAnswer settles by what a handler of net/http answers, with middleware
// on either side of the rules, and answers of middleware behind them.
func TestSettlesByTheAnswer(t *testing.T) {
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Password") {
		case "silent":
		case "right":
			_, _ = w.Write([]byte("welcome"))
		case "slow":
			<-r.Context().Done()
			w.WriteHeader(http.StatusUnauthorized) // too late
		default:
			http.Error(w, "wrong password", http.StatusUnauthorized)
		}
	})
	silent := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain := func(next http.Handler) http.Handler { return next }
	timeout := func(next http.Handler) http.Handler {
		slow := http.TimeoutHandler(next, time.Millisecond, "too slow")
		patient := http.TimeoutHandler(next, time.Hour, "too slow")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Password") == "slow" {
				slow.ServeHTTP(w, r)
				return
			}
			patient.ServeHTTP(w, r)
		})
	}
	for name, test := range map[string]struct {
		outside, inside func(http.Handler) http.Handler
		handler         http.Handler
		free            map[string]int
	}{
		"handler":        {plain, plain, login, map[string]int{"right": 200, "silent": 200}},
		"error behind":   {plain, func(next http.Handler) http.Handler { return answeredAfter(next, login) }, silent, map[string]int{"right": 200}},
		"gzip outside":   {compressed, plain, login, map[string]int{"right": 200}},
		"gzip inside":    {plain, compressed, login, map[string]int{"right": 200}},
		"timeout inside": {plain, timeout, login, map[string]int{"right": 200, "silent": 200, "slow": 503}},
	} {
		for _, served := range []bool{false, true} {
			limiter := limit.New(nil, nil)
			failed := func(name string) limit.RuleSet {
				return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
					Settle: limit.OnStatus(http.StatusUnauthorized)})
			}
			h := test.outside(limiter.Limit(failed("outer"))(limiter.Limit(failed("inner"))(test.inside(test.handler))))
			for password, status := range test.free {
				assert.Equal(t, map[int]int{status: 20}, routetest.Statuses(t, h, served, 20, "/login", "Password", password), "%s, %s", name, password)
			}
			assert.Equal(t, map[int]int{401: 5, 429: 15}, routetest.Statuses(t, h, served, 20, "/login"), name)
		}
	}
}

// TestAbortedAnswers settles a response that a handler aborts by the status that was
// sent, and keeps the charge of one that was not.
func TestAbortedAnswers(t *testing.T) {
	for _, test := range []struct {
		status int
		left   int64
	}{{0, 4}, {http.StatusOK, 5}, {http.StatusUnauthorized, 4}} {
		limiter := limit.New(nil, nil)
		rules := limit.Named("login", limit.Rule{Key: limit.Everyone, Limit: 5, Window: time.Hour, Settle: limit.OnStatus(http.StatusUnauthorized)})
		h := limiter.Limit(rules)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if test.status != 0 {
				w.WriteHeader(test.status)
			}
			panic(http.ErrAbortHandler)
		}))
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		})
		d, err := mustPolicy(limiter, rules).Peek(t.Context(), limit.Request{})
		require.NoError(t, err)
		assert.Equal(t, test.left, d.Rules()[0].Remaining, test.status)
	}
}
