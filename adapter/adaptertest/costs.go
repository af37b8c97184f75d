package adaptertest

import (
	"io"
	"net/http"
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
	cost := rules.CostBy("units", func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
		return n
	})
	units := limit.Rule{Name: "units", Key: limit.Everyone, Limit: 10, Window: time.Hour, Cost: cost}
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
	}, seen: []string{
		"admitted", "refused", "refused", "refused", "allowed=false", "allowed=false", "admitted", "admitted",
	}, failures: []string{
		`rule "units": cost -1: write 0 or more`, `rule "units": cost -9223372036854775808: write 0 or more`,
	}, notices: []string{"code=" + notice.Undecided}}}
}

// settlements are flows in which the status of the answer settles the cost of a request, and the
// other rules of the set stay as they are.
func settlements() []flow {
	answer := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch status, _ := strconv.Atoi(r.Header.Get("X-Status")); status {
			case 0: // a handler that writes nothing
			case 1:
				_, _ = w.Write([]byte("a body alone"))
			case http.StatusNoContent:
				h.ServeHTTP(w, r)
			default:
				w.WriteHeader(status)
			}
		})
	}
	get := func(status int) step { return send("GET /", status).from("X-Status", strconv.Itoa(status)) }
	nothing, body := send("GET /", 200), send("GET /", 200).from("X-Status", "1").answers("a body alone")
	costs := func(status int, left string) step { return get(status).says("RateLimit", `"units";r=`+left+`;t=3600`) }
	failed := limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 3, Window: time.Hour, Settle: rules.OnStatus(http.StatusUnauthorized)}
	units := limit.Rule{Name: "units", Key: limit.Everyone, Limit: 100, Window: time.Hour,
		Cost:   rules.CostBy("units", func(*http.Request) int64 { return 10 }),
		Settle: rules.SettleBy("units", func(_ *http.Request, status int) int64 { return int64(status) - 210 })}
	return []flow{
		{name: "settles", declare: func(r Router, h http.Handler) {
			r.Handle("GET", "/", answer(h), limit.Rules(failed, limit.Global(time.Hour, 1000)))
		}, steps: []step{
			nothing, body, get(200), get(204), get(403), get(500), nothing, body, get(200), // only 401 counts
			get(401), get(401), get(401),
			send("GET /", 429, 429).says("RateLimit", `"failed";r=0;t=3600, "global-1h";r=988;t=3600`),
		}},
		// The header is that of the decision, which takes 10. The last is settled at no more than
		// there was room for.
		{name: "settles costs", declare: func(r Router, h http.Handler) {
			r.Handle("GET", "/", answer(h), limit.Rules(units))
		}, steps: []step{
			costs(210, "90"), costs(215, "90"), costs(220, "85"), costs(250, "75"),
			costs(209, "35"), costs(210, "25"), costs(500, "25"),
			send("GET /", 429),
		}, failures: []string{`rule "units": settled: cost -1`}, notices: []string{"code=" + notice.Unsettled + ` settled: cost -1`}},
	}
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
