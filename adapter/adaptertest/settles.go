package adaptertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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

// passwords admits five requests that are answered with 401.
func passwords(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: rules.OnStatus(http.StatusUnauthorized)})
}

// left returns how many requests a set still admits.
func left(t *testing.T, limiter *limit.Limiter, rules limit.RuleSet) int64 {
	t.Helper()
	policy, err := limiter.Policy(rules)
	require.NoError(t, err)
	d, err := policy.Peek(t.Context(), limit.Request{})
	require.NoError(t, err)
	return slices.Collect(d.Rules())[0].Remaining
}

func silent(http.ResponseWriter, *http.Request) {}

func unauthorized(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }

// settlements are flows in which the status of the answer settles the cost of a request, and the
// other rules of the set stay as they are. If the handler writes nothing, the request is settled
// when its context ends, and the client may have its answer by then: see settlesStreams.
func settlements() []flow {
	answer := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch status, _ := strconv.Atoi(r.Header.Get("X-Status")); status {
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
	body := send("GET /", 200).from("X-Status", "1").answers("a body alone")
	costs := func(status int, left string) step { return get(status).says("RateLimit", `"units";r=`+left+`;t=3600`) }
	failed := limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 3, Window: time.Hour, Settle: rules.OnStatus(http.StatusUnauthorized)}
	units := limit.Rule{Name: "units", Key: limit.Everyone, Limit: 100, Window: time.Hour,
		Cost:   rules.CostBy("units", func(*http.Request) int64 { return 10 }),
		Settle: rules.SettleBy("units", func(_ *http.Request, status int) int64 { return int64(status) - 210 })}
	return []flow{
		{name: "settles", declare: func(r Router, h http.Handler) {
			r.Handle("GET", "/", answer(h), limit.Rules(failed, limit.Global(time.Hour, 1000)))
		}, steps: []step{
			body, get(200), get(204), get(403), get(500), body, get(200), // only 401 counts
			get(401), get(401), get(401),
			send("GET /", 429, 429).says("RateLimit", `"failed";r=0;t=3600, "global-1h";r=990;t=3600`),
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
		case "":
			running <- true
			<-end
		}
	}), rules)
	get := func(panics string) (code int, panicked any) {
		defer func() { panicked = recover() }()
		return routetest.Do(router, "GET", "/", "X-Panic", panics).Code, nil
	}
	for range 3 {
		_, panicked := get("late")
		require.NotNil(t, panicked)
		require.Equal(t, http.StatusCreated, receive(t, statuses))
	}
	_, panicked := get("early")
	require.NotNil(t, panicked)
	var done sync.WaitGroup
	done.Go(func() { get("") })
	receive(t, running)
	code, _ := get("never")
	assert.Equal(t, http.StatusTooManyRequests, code, "the handler of one runs, and one was never answered")
	close(end)
	done.Wait()
	assert.Equal(t, http.StatusOK, receive(t, statuses))
}

// settlesLater checks that middleware between two sets settles both by its answer, which
// comes after the handlers behind the inner set have returned.
func (s suite) settlesLater(t *testing.T) {
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		handler  http.HandlerFunc
		statuses map[int]int
	}{
		"a status":       {unauthorized, silent, map[int]int{401: 5, 429: 15}},
		"a body":         {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "wrong", http.StatusUnauthorized) }, silent, map[int]int{401: 5, 429: 15}},
		"another":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, silent, map[int]int{403: 20}},
		"nothing":        {silent, silent, map[int]int{200: 20}},
		"answered first": {unauthorized, ok, map[int]int{204: 20}},
	} {
		for _, of := range []string{"outer", "inner"} {
			limiter := limit.New(nil, nil)
			router := s.framework(limiter)
			all := limit.Named("all", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 1000, Window: time.Hour, Settle: rules.OnStatus(500)})
			outer, inner := passwords("outer"), all
			if of == "inner" {
				outer, inner = all, passwords("inner")
			}
			router.Use(outer)
			router.After(test.answer)
			router.Handle("GET", "/login", test.handler, inner)
			got := make(map[int]int)
			for range 20 {
				got[routetest.Do(router, "GET", "/login").Code]++
			}
			assert.Equal(t, test.statuses, got, "%s, %s", name, of)
			assert.EqualValues(t, 1000, left(t, limiter, all), "%s, %s", name, of)
		}
	}
}

// settlesRecovered checks that recovery middleware between two sets settles both.
func (s suite) settlesRecovered(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	outer, inner := passwords("outer"), passwords("inner")
	router.Handle("GET", "/login", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("wrong password") }), inner)
	recovering := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			recover()
			w.WriteHeader(http.StatusUnauthorized)
		}()
		router.ServeHTTP(w, r)
	})
	policy, err := limiter.Policy(outer)
	require.NoError(t, err)
	server := policy.Handler(recovering)
	for _, want := range []int{401, 401, 401, 401, 401, 429, 429, 429} {
		assert.Equal(t, want, routetest.Do(server, "GET", "/login").Code)
	}
	assert.Zero(t, left(t, limiter, outer))
	assert.Zero(t, left(t, limiter, inner))
}

// settlesRequestsOfHandlers checks that a request that a handler sends to its own router,
// with its own context, is settled by its own answer.
func (s suite) settlesRequestsOfHandlers(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	batch, login := passwords("batch"), passwords("login")
	router.Handle("GET", "/login", http.HandlerFunc(unauthorized), login)
	var statuses []int
	router.Handle("GET", "/batch", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 10 {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), "GET", "/login", nil))
			statuses = append(statuses, w.Code)
		}
	}), batch)
	assert.Equal(t, http.StatusOK, routetest.Do(router, "GET", "/batch").Code)
	assert.Equal(t, []int{401, 401, 401, 401, 401, 429, 429, 429, 429, 429}, statuses)
	assert.EqualValues(t, 5, left(t, limiter, batch))
	assert.Zero(t, left(t, limiter, login), "not settled by the answer of the batch")
}

// settled returns a set whose requests are settled by a status that the channel gets.
func settled(n int64) (limit.RuleSet, chan int) {
	statuses := make(chan int, 100)
	return limit.Rules(limit.Rule{Name: "answers", Key: limit.Everyone, Limit: n, Window: time.Hour,
		Settle: rules.SettleBy("statuses", func(_ *http.Request, status int) int64 { statuses <- status; return 0 })}), statuses
}

// settlesUsed checks that a handler can say through its context what it uses, and that it is
// told when there is no more.
func (s suite) settlesUsed(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	set := limit.Named("rows", limit.Rule{Name: "rows", Key: limit.Everyone, Limit: 100, Window: time.Hour, Settle: rules.AsUsed})
	served := 0
	router.Handle("GET", "/rows", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := int64(1); n <= 40; n++ {
			if err := limit.DecisionFrom(r.Context()).Use(r.Context(), map[string]int64{"rows": n}); err != nil {
				assert.ErrorAs(t, err, new(*limit.RefusedError))
				return
			}
			served++
		}
	}), set)
	for i, want := range []int{40, 80, 100, 100} {
		routetest.Do(router, "GET", "/rows")
		assert.Equal(t, want, served, i)
		assert.EqualValues(t, 100-want, left(t, limiter, set), i)
	}
}

// settlesStreams settles a stream by its status when its handler returns, a hijacked connection as
// 101, and a request that nothing has answered, or only with hints, as 200 when it ends.
func (s suite) settlesStreams(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	rules, statuses := settled(100)
	router.Handle("GET", "/stream", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, err := io.WriteString(w, "part\n")
			assert.NoError(t, err)
			assert.NoError(t, http.NewResponseController(w).Flush())
			assert.Empty(t, statuses, "the handler still runs")
		}
	}), rules)
	hijacked, hijacks := settled(100)
	router.Handle("GET", "/hijack", hijacking(t, "HTTP/1.1 204 No Content\r\n\r\n"), hijacked)
	unanswered, ends := settled(100)
	router.Handle("GET", "/silent", http.HandlerFunc(silent), unanswered)
	hinted, hints := settled(100)
	router.Handle("GET", "/hints", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }), hinted)
	upgraded, upgrades := settled(100)
	router.Handle("GET", "/upgrade", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }), upgraded)
	c := serve(t, router)
	assert.Equal(t, "part\npart\npart\n", c.send("GET", "/stream").body)
	assert.Equal(t, http.StatusOK, receive(t, statuses))
	assert.Equal(t, http.StatusNoContent, c.send("GET", "/hijack").StatusCode)
	assert.Equal(t, http.StatusSwitchingProtocols, receive(t, hijacks))
	assert.Equal(t, http.StatusOK, c.send("GET", "/silent").StatusCode)
	assert.Equal(t, http.StatusOK, receive(t, ends))
	assert.Equal(t, http.StatusOK, c.send("GET", "/hints").StatusCode)
	assert.Equal(t, http.StatusOK, receive(t, hints))
	assert.Equal(t, http.StatusSwitchingProtocols, c.send("GET", "/upgrade").StatusCode)
	assert.Equal(t, http.StatusSwitchingProtocols, receive(t, upgrades))
}

// settlesReset checks that clients that reset their streams settle nothing: the answer
// that they do not wait for counts.
func (s suite) settlesReset(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	outer, inner := passwords("outer"), passwords("inner")
	router.Use(outer)
	done := make(chan bool, 5)
	router.After(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { done <- true }()
		ended(r)
		http.Error(w, "wrong password", http.StatusUnauthorized)
	}))
	running := make(chan bool)
	router.Handle("GET", "/login", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { running <- true }), inner)
	server := start(t, router, true)
	c := clientOf(t, server)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error)
		go func() {
			_, err := c.try(ctx, "GET", "/login", nil)
			answered <- err
		}()
		receive(t, running)
		cancel()
		assert.Error(t, receive(t, answered))
		receive(t, done)
	}
	server.Close() // waits for the handlers
	assert.Zero(t, left(t, limiter, inner))
	assert.Zero(t, left(t, limiter, outer))
}

// settlesAndReleases checks that a lease ends when the handler behind its rules has
// returned, though the request is answered later.
func (s suite) settlesAndReleases(t *testing.T) {
	limiter := limit.New(nil, nil)
	router := s.framework(limiter)
	slots := limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}}
	slots.Name = "slots"
	inner := limit.Named("inner", slots, limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: rules.OnStatus(http.StatusUnauthorized)})
	router.Use(passwords("outer"))
	router.After(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.EqualValues(t, 1, left(t, limiter, inner), "the lease has ended")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	router.Handle("GET", "/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.Zero(t, left(t, limiter, inner))
	}), inner)
	assert.Equal(t, http.StatusUnauthorized, routetest.Do(router, "GET", "/").Code)
}
