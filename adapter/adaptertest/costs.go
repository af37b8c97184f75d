package adaptertest

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// costs are flows of requests with a cost. A negative one neither runs the handler nor charges
// anything.
func costs() []flow {
	units := limit.Rule{Name: "units", Key: limit.Everyone, Limit: 10, Window: time.Hour, Cost: rules.CostBy("units", func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
		return n
	})}
	of := func(cost string, status int, retryAfter, rateLimit string) step {
		return send("GET /", status).from("X-Cost", cost).says("Retry-After", retryAfter, "RateLimit", rateLimit)
	}
	negative := func(cost string) step { // clients do not learn why
		return of(cost, 503, "1", "").with(reducedCapacity("The rate limiter is unavailable", ""))
	}
	return []flow{{name: "costs", declare: on("GET /", limit.Rules(limit.Global(time.Hour, 100), units)), steps: []step{
		of("7", 204, "", `"global-1h";r=99;t=3600, "units";r=3;t=3600`),
		of("4", 429, "3600", `"global-1h";r=99;t=3600, "units";r=3;t=3600`),
		of("11", 429, "", `"global-1h";r=99;t=3600, "units";r=3`),
		of("9223372036854775807", 429, "", `"global-1h";r=99;t=3600, "units";r=3`),
		negative("-1"),
		negative("-9223372036854775808"),
		of("0", 204, "", `"global-1h";r=98;t=3600, "units";r=3;t=3600`),
		of("3", 204, "", `"global-1h";r=97;t=3600, "units";r=0;t=3600`),
	}, seen: []string{"admitted <nil>", "refused <nil>", "refused <nil>", "refused <nil>", `rule "units": cost -1: write 0 or more`,
		`rule "units": cost -9223372036854775808: write 0 or more`, "admitted <nil>", "admitted <nil>"},
		notices: []string{"code=" + notice.Undecided}}}
}

// settles checks that the status of the answer settles the cost of a request, and
// that the other rules of the set stay as they are.
func (s suite) settles(t *testing.T) {
	var undecided []error
	router := s.framework(limit.New(nil, &limit.Options{
		Log: slog.New(slog.DiscardHandler),
		Observe: func(_ *http.Request, _ limit.Decision, err error) {
			if err != nil {
				undecided = append(undecided, err)
			}
		},
	}))
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status, _ := strconv.Atoi(r.Header.Get("X-Status")); status {
		case 0: // a handler that writes nothing
		case 1:
			_, _ = w.Write([]byte("a body alone"))
		default:
			w.WriteHeader(status)
		}
	})
	failed := limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 3, Window: time.Hour, Settle: rules.OnStatus(http.StatusUnauthorized)}
	router.Handle("GET", "/login", answer, limit.Rules(failed, limit.Global(time.Hour, 1000)))
	router.Handle("GET", "/costs", answer, limit.Rules(limit.Rule{Name: "units", Key: limit.Everyone, Limit: 100, Window: time.Hour,
		Cost:   rules.CostBy("units", func(*http.Request) int64 { return 10 }),
		Settle: rules.SettleBy("units", func(_ *http.Request, status int) int64 { return int64(status) - 210 })}))
	get := func(path string, status int) *httptest.ResponseRecorder {
		return routetest.Do(router, "GET", path, "X-Status", strconv.Itoa(status))
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
		left   string // after the next request, which takes 10
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

// settlesBroken checks that a request counts while its handler runs and, if its
// handler panics, as answered with the status that was sent. If none was, it stays
// charged: nothing tells what recovery middleware outside answers.
func (s suite) settlesBroken(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	running, end := make(chan bool), make(chan bool)
	rules, statuses := settled(2)
	router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Panic") {
		case "late":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "sent")
			panic("on purpose")
		case "early":
			panic("on purpose")
		}
		running <- true
		<-end
	}), rules)
	get := func(panics string) (code int, panicked any) {
		defer func() { panicked = recover() }()
		return routetest.Do(router, "GET", "/", "X-Panic", panics).Code, nil
	}
	for range 3 {
		_, panicked := get("late")
		require.NotNil(t, panicked)
		require.Equal(t, http.StatusCreated, <-statuses)
	}
	_, panicked := get("early")
	require.NotNil(t, panicked)
	var done sync.WaitGroup
	done.Go(func() { get("") })
	<-running
	code, _ := get("")
	assert.Equal(t, http.StatusTooManyRequests, code, "the handler of one runs, and one was never answered")
	close(end)
	done.Wait()
	assert.Equal(t, http.StatusOK, <-statuses)
}
