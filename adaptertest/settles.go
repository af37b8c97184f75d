package adaptertest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// failedLogins counts the requests that are answered with 401.
func failedLogins(n int64) limit.RuleSet {
	return limit.Rules(
		limit.Rule{Name: "failed", Key: limit.Everyone, Limit: n, Window: time.Hour, Settle: limit.OnStatus(http.StatusUnauthorized)},
		limit.Global(time.Hour, 1000))
}

// settles checks that what a request costs is settled by how it is answered,
// and that the other rules of the set stay as they are.
func (s suite) settles(t *testing.T) {
	var mu sync.Mutex
	var undecided []error
	router := s.framework(limit.New(nil, &limit.Options{Observe: func(_ *http.Request, _ limit.Decision, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			undecided = append(undecided, err)
		}
	}}))
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status, _ := strconv.Atoi(r.Header.Get("X-Status")); status {
		case 0: // the answer of a handler that says nothing
		case 1:
			_, _ = w.Write([]byte("a body alone"))
		default:
			w.WriteHeader(status)
		}
	})
	router.Handle("GET", "/login", answer, failedLogins(3))
	router.Handle("GET", "/costs", answer, limit.Rules(limit.Rule{Name: "units", Key: limit.Everyone, Limit: 100, Window: time.Hour,
		Cost:   func(*http.Request) int64 { return 10 },
		Settle: func(_ *http.Request, status int) int64 { return int64(status) - 210 }}))
	get := func(path string, status int) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Status", strconv.Itoa(status))
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w
	}
	for _, status := range []int{0, 1, 200, 204, 403, 500, 0, 1, 200} {
		require.NotEqual(t, http.StatusTooManyRequests, get("/login", status).Code, "only 401 counts")
	}
	for range 3 {
		require.Equal(t, http.StatusUnauthorized, get("/login", http.StatusUnauthorized).Code)
	}
	assert.Equal(t, http.StatusTooManyRequests, get("/login", 200).Code)
	assert.Equal(t, []string{`"failed";r=0;t=3600, "global-1h";r=988;t=3600`}, get("/login", 200).Header()["Ratelimit"])

	for _, row := range []struct {
		status int
		left   string // as the next request finds it, which takes 10
	}{{210, `"units";r=90`}, {215, `"units";r=90`}, {220, `"units";r=85`}, {250, `"units";r=75`}, {209, `"units";r=35`},
		{210, `"units";r=25`}, {500, `"units";r=25`}} {
		w := get("/costs", row.status)
		require.Equal(t, row.status, w.Code)
		assert.Contains(t, w.Header().Get("Ratelimit"), row.left)
	}
	assert.Equal(t, http.StatusTooManyRequests, get("/costs", 210).Code, "no more than there was room for was taken")
	require.Len(t, undecided, 1)
	assert.ErrorContains(t, undecided[0], `rule "units": settled: cost -1`)
}

// settlesBroken checks that a request counts while it is under way, and as
// answered with 500 if its handler panics.
func (s suite) settlesBroken(t *testing.T) {
	statuses := make(chan int, 1)
	router := s.framework(limit.New(nil, nil))
	running, end := make(chan bool), make(chan bool)
	rules := limit.Rules(limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 1, Window: time.Hour,
		Settle: func(_ *http.Request, status int) int64 { statuses <- status; return 0 }})
	router.Handle("GET", "/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Panic") != "" {
			panic("on purpose")
		}
		running <- true
		<-end
	}), rules)
	get := func(panics string) (code int, panicked any) {
		defer func() { panicked = recover() }()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Panic", panics)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w.Code, nil
	}
	for range 3 {
		_, panicked := get("yes")
		assert.NotNil(t, panicked)
		assert.Equal(t, http.StatusInternalServerError, <-statuses)
	}
	var done sync.WaitGroup
	done.Go(func() { get("") })
	<-running
	code, _ := get("")
	assert.Equal(t, http.StatusTooManyRequests, code, "one is under way")
	close(end)
	done.Wait()
	assert.Equal(t, http.StatusOK, <-statuses)
}
