package limit_test

import (
	"compress/gzip"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
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

// answeredKey is of the channel that is closed once a timeout has answered.
type answeredKey struct{}

// TestSettlesByTheAnswer settles by what a handler of net/http answers, with middleware
// on either side of the rules, and answers of middleware behind them.
func TestSettlesByTheAnswer(t *testing.T) {
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Password") {
		case "silent":
		case "right":
			_, _ = w.Write([]byte("welcome"))
		case "slow":
			<-r.Context().Value(answeredKey{}).(chan struct{})
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
				answered := make(chan struct{})
				defer close(answered)
				slow.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answeredKey{}, answered)))
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
					Settle: rules.OnStatus(http.StatusUnauthorized)})
			}
			h := test.outside(limiter.Limit(failed("outer"))(limiter.Limit(failed("inner"))(test.inside(test.handler))))
			for password, status := range test.free {
				if served && password == "silent" {
					continue // it is settled a moment after it is answered: see TestSettlesSilence
				}
				assert.Equal(t, map[int]int{status: 20}, routetest.Statuses(t, h, served, 20, "/login", "Password", password), "%s, %s", name, password)
			}
			assert.Equal(t, map[int]int{401: 5, 429: 15}, routetest.Statuses(t, h, served, 20, "/login"), name)
		}
	}
}

// TestSettlesSilence checks that a handler that writes nothing has answered with 200 when
// its request ends, and that a context with a deadline does not tell that end.
func TestSettlesSilence(t *testing.T) {
	statuses := make(chan int, 20)
	settle := rules.SettleBy("statuses", func(_ *http.Request, status int) int64 { statuses <- status; return 0 })
	rules := limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 5, Window: time.Hour, Settle: settle})
	silent := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := limit.New(nil, nil).Limit(rules)(silent)
	for range 7 {
		require.Equal(t, map[int]int{200: 1}, routetest.Statuses(t, h, true, 1, "/"))
		require.Equal(t, http.StatusOK, <-statuses)
	}

	h = limit.New(nil, nil).Limit(rules)(silent)
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
	assert.Equal(t, map[int]int{200: 5, 429: 2}, routetest.Statuses(t, limited, true, 7, "/"))
}

// TestAbortedAnswers settles a response that a handler aborts by the status that was
// sent, and keeps the charge of one that was not.
func TestAbortedAnswers(t *testing.T) {
	for _, test := range []struct {
		status int
		left   int64
	}{{0, 4}, {http.StatusOK, 5}, {http.StatusUnauthorized, 4}} {
		limiter := limit.New(nil, nil)
		rules := limit.Named("login", limit.Rule{Key: limit.Everyone, Limit: 5, Window: time.Hour, Settle: rules.OnStatus(http.StatusUnauthorized)})
		h := limiter.Limit(rules)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if test.status != 0 {
				w.WriteHeader(test.status)
			}
			panic(http.ErrAbortHandler)
		}))
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		})
		d := must.Get(mustPolicy(limiter, rules).Peek(t.Context(), limit.Request{}))(t)
		assert.Equal(t, test.left, slices.Collect(d.Rules())[0].Remaining, test.status)
	}
}
