package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// ok answers 200.
var ok200 = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})

func sent(h http.Handler, target string) *httptest.ResponseRecorder {
	return send(h, "GET", target)
}

// left returns what a rule of a named policy has left for a key.
func left(t *testing.T, l *limit.Limiter, policy, rule, key string) int64 {
	t.Helper()
	r := must.Get(operate.Peek(t.Context(), l, policy, rule, key, ""))(t)
	return r.Remaining
}

type userKey struct{}

// signedIn puts the user of the request's header into its context, as authentication does.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("User"))))
	})
}

// TestOverlappingRefusals has four clients send 1,200 requests through a bucket to a route that
// refuses all but one. The bucket lacks at most what twelve of them take.
func TestOverlappingRefusals(t *testing.T) {
	for name, l := range map[string]*limit.Limiter{
		"memory": limit.New(nil, nil),
		"Redis":  limit.New(patientStore(redistest.Real(t), redisstore.Options{}), nil),
	} {
		t.Run(name, func(t *testing.T) {
			bucket := limit.Rule{Name: "bucket", Key: limit.Everyone, Limit: 300, Window: time.Minute, Algorithm: limit.TokenBucket{}}
			application := must.Get(l.Policy(limit.Named("app", bucket)))(t)
			h := application.Handler(l.Limit(limit.Named("route", limit.Global(time.Hour, 1)))(ok200))
			var clients sync.WaitGroup
			for range 4 {
				clients.Go(func() {
					for range 300 {
						sent(h, "/")
					}
				})
			}
			clients.Wait()
			assert.GreaterOrEqual(t, left(t, l, "app", "bucket", ""), int64(300-1-12))
		})
	}
}

// TestNoticeOfFreeAttempts puts authentication between two sets, before both, and behind
// one that counts attempts.
func TestNoticeOfFreeAttempts(t *testing.T) {
	for name, test := range map[string]struct {
		attempts, first bool
		want            int
	}{"between": {want: 1}, "attempts": {attempts: true}, "before": {first: true}} {
		book := new(logbook.Book)
		l := limit.New(nil, &limit.Options{Log: book.Log(), Caller: limit.Caller[*http.Request]{
			User: func(r *http.Request) string { u, _ := r.Context().Value(userKey{}).(string); return u }}})
		outer := must.Get(l.Policy(limit.Named("addresses", limit.Rule{Key: limit.ByIP, Limit: 9, Window: time.Hour, Attempts: test.attempts})))(t)
		h := l.Limit(limit.Named("users", limit.PerUser(time.Hour, 1)))(ok200)
		if test.first {
			h = signedIn(outer.Handler(h))
		} else {
			h = outer.Handler(signedIn(h))
		}
		for range 4 {
			send(h, "GET", "/", "User", "alice")
		}
		lines := book.Lines()
		require.Len(t, lines, test.want, name)
		if test.want > 0 {
			assert.Contains(t, lines[0], "code=LIMIT-120 before=addresses behind=users")
		}
	}
}

// TestLayersAroundWaits has an inner set let requests wait, by a Refusal and in a queue. A
// client that leaves, and a wait that ends without an admission, cost the outer set nothing,
// and one that is admitted costs it a unit.
func TestLayersAroundWaits(t *testing.T) {
	for name, rule := range map[string]limit.Rule{
		"refusal": {Key: limit.Everyone, Limit: 1, Window: 10 * time.Second, OnRefusal: limit.Refusal{Wait: 20 * time.Second}},
		"queue":   {Key: limit.Everyone, Limit: 1, Window: 10 * time.Second, Algorithm: limit.Queue{Burst: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limit.New(nil, nil)
				outer := must.Get(l.Policy(limit.Named("outer", limit.Global(time.Hour, 100), limit.Rule{Key: limit.Everyone, Limit: 50, Algorithm: limit.Concurrency{}})))(t)
				h := outer.Handler(l.Limit(limit.Named("inner", rule))(ok200))
				request := func(patience time.Duration) chan int {
					code := make(chan int, 1)
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						w := httptest.NewRecorder()
						h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
						code <- w.Code
					}()
					synctest.Wait()
					return code
				}
				require.Equal(t, 200, <-request(time.Minute))
				waits := request(time.Minute)
				assert.EqualValues(t, 98, left(t, l, "outer", "global-1h", ""), "others see the units of a request that waits as taken")
				require.NotEqual(t, 200, <-request(15*time.Second), "which cannot be admitted before")
				assert.EqualValues(t, 98, left(t, l, "outer", "global-1h", ""))
				require.Equal(t, 200, <-waits)
				assert.EqualValues(t, 98, left(t, l, "outer", "global-1h", ""))

				ctx, cancel := context.WithCancel(t.Context())
				go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				synctest.Wait()
				assert.EqualValues(t, 97, left(t, l, "outer", "global-1h", ""))
				cancel()
				synctest.Wait()
				assert.EqualValues(t, 98, left(t, l, "outer", "global-1h", ""))
			})
		})
	}
}

// TestLayersAroundFailures has an inner set that cannot decide, and an outer set whose
// store fails when it should give back: then the units stay taken, and Observe says so.
func TestLayersAroundFailures(t *testing.T) {
	store := &unreturning{Store: memstore.New(nil)}
	var seen []string
	l := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler), Observe: func(_ *http.Request, d limit.Decision, err error) {
		seen = append(seen, fmt.Sprint(d.Policy, " ", d.Outcome(), " ", err != nil))
	}})
	outer := must.Get(l.Policy(limit.Named("outer", limit.Global(time.Hour, 100))))(t)
	cost := rules.CostBy("cost", func(*http.Request) int64 { return -1 })
	undecided := outer.Handler(l.Limit(limit.Named("undecided", limit.Rule{Key: limit.Everyone, Limit: 9, Window: time.Hour, Cost: cost}))(ok200))
	refused := outer.Handler(l.Limit(limit.Named("refused", limit.Global(time.Hour, 1)))(ok200))
	assert.Equal(t, 503, sent(undecided, "/").Code)
	assert.EqualValues(t, 100, left(t, l, "outer", "global-1h", ""))
	assert.Equal(t, []string{"outer admitted false", "outer given back false", "  true"}, seen)

	require.Equal(t, 200, sent(refused, "/").Code)
	store.returns = errors.New("no answer")
	seen = nil
	assert.Equal(t, 429, sent(refused, "/").Code)
	assert.Equal(t, []string{"outer admitted false", "outer admitted true", "refused refused false"}, seen)
	store.returns = nil
	assert.EqualValues(t, 98, left(t, l, "outer", "global-1h", ""))
}

// An unreturning is a store whose returns fail, perhaps after some calls, or give nothing.
type unreturning struct {
	core.Store
	returns error
	most    int // calls that succeed, if it is not 0
	nothing bool
}

func (s *unreturning) Guarded() bool { return true }

func (s *unreturning) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	switch {
	case s.returns != nil:
		return nil, s.returns
	case s.nothing:
		return make([]core.Returned, len(returns)), nil
	case s.most > 0:
		if s.most--; s.most == 0 {
			s.returns = errors.New("no answer")
		}
	}
	return s.Store.Return(ctx, returns)
}

// TestLayersAroundParts has a handler write several parts into one response. Once one is
// served, or degraded, the refusal of a later one gives back nothing.
func TestLayersAroundParts(t *testing.T) {
	for name, refusal := range map[string]limit.Refusal{"served": {}, "degraded": {Degrade: true}, "exempt": {}} {
		served, l := 0, limit.New(nil, nil)
		outer := must.Get(l.Policy(limit.Named("outer", limit.Global(time.Hour, 100))))(t)
		serves := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
		first := limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Hour, OnRefusal: refusal}
		if name == "exempt" {
			first.Exempt = []string{"ip 192.0.2.0/24"} // of httptest
		}
		parts := []http.Handler{l.Limit(limit.Named("first", first))(serves), l.Limit(limit.Named("last", limit.Global(time.Hour, 1)))(serves)}
		h := outer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			parts[0].ServeHTTP(w, r)
			parts[1].ServeHTTP(w, r)
		}))
		for range 3 {
			sent(h, "/")
		}
		if name == "served" {
			assert.Equal(t, 2, served)
			assert.EqualValues(t, 99, left(t, l, "outer", "global-1h", ""), "the second and third request are refused as a whole")
		} else {
			assert.Equal(t, 4, served, name)
			assert.EqualValues(t, 97, left(t, l, "outer", "global-1h", ""), name)
		}
	}
}

// TestLayersAroundPartsAtOnce has a part of a response refused while another one is being made.
// If that is served, or panics, it is charged. If a set behind it refuses it too, it is not.
func TestLayersAroundPartsAtOnce(t *testing.T) {
	for how, want := range map[string]int64{"served": 97, "panics": 97, "refused": 99} {
		l := limit.New(nil, nil)
		outer := must.Get(l.Policy(limit.Named("outer", limit.Global(time.Hour, 100))))(t)
		full := l.Limit(limit.Named("full", limit.Global(time.Hour, 1)))(ok200)
		behind := l.Limit(limit.Named("behind", limit.Global(time.Hour, 1)))(ok200)
		h := outer.Handler(http.HandlerFunc(func(w http.ResponseWriter, whole *http.Request) {
			part := l.Limit(limit.Named("part", limit.Global(time.Hour, 100)))
			part(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				full.ServeHTTP(w, whole)
				switch how {
				case "panics":
					panic(http.ErrAbortHandler)
				case "refused":
					behind.ServeHTTP(w, r)
				}
			})).ServeHTTP(w, whole)
		}))
		for range 3 {
			func() {
				defer func() { _ = recover() }()
				sent(h, "/")
			}()
		}
		assert.Equal(t, want, left(t, l, "outer", "global-1h", ""), how)
	}
}

// TestLayersAroundProcedures has an HTTP handler call a procedure of its process, which is
// refused. That answers the request if it is for the procedure.
func TestLayersAroundProcedures(t *testing.T) {
	a := &adapter.Adapter[func()]{RPC: true,
		Route: func(func()) (string, string) { return "", "/acme.Books/Get" },
		Next:  func(next func(), _ *http.Request) (int, error) { next(); return 200, nil }}
	for target, want := range map[string]int64{"/acme.Books/Get": 99, "/api/acme.Books/Get": 99, "/report": 97} {
		l := limit.New(nil, nil)
		outer := must.Get(l.Policy(limit.Named("outer", limit.Global(time.Hour, 100))))(t)
		procedure := must.Get(a.Bind(l, "", limit.Named("procedure", limit.Global(time.Hour, 1))))(t)
		h := outer.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			call := adapter.RPCRequest(r.Context(), "/acme.Books/Get", "", http.Header{})
			_ = a.Serve(procedure, adapter.HeaderWriter{}, call, func() {})
		}))
		for range 3 {
			sent(h, target)
		}
		assert.Equal(t, want, left(t, l, "outer", "global-1h", ""), target)
	}
}

// TestNoticeOfTwiceRefused has one set twice on a request, with a limit of 1: it is refused
// forever, and the log says why.
func TestNoticeOfTwiceRefused(t *testing.T) {
	book := new(logbook.Book)
	l := limit.New(nil, &limit.Options{Log: book.Log()})
	p := must.Get(l.Policy(limit.Named("p", limit.Global(time.Hour, 1))))(t)
	h := p.Handler(p.Handler(ok200))
	for range 3 {
		assert.Equal(t, 429, sent(h, "/").Code)
	}
	lines := book.Lines()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "code=LIMIT-102")
}

// TestLayersTryAgain has middleware between two sets send a request that was refused to
// another set. If that serves it, the outer set is charged after all.
func TestLayersTryAgain(t *testing.T) {
	for name, second := range map[string]limit.Rule{
		"admitted": {Key: limit.Everyone, Limit: 1000, Window: time.Hour},
		"degraded": {Key: limit.Everyone, Limit: 1, Window: time.Hour, OnRefusal: limit.Refusal{Degrade: true}},
		"exempt":   {Key: limit.Everyone, Limit: 1, Window: time.Hour, Exempt: []string{"ip 192.0.2.0/24"}}, // of httptest
		"refused":  {Key: limit.Everyone, Limit: 4, Window: time.Hour},
	} {
		var seen []string
		served, l := 0, limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, _ error) {
			if d.Policy == "outer" {
				seen = append(seen, d.Outcome())
			}
		}})
		full := bound(t, l, limit.Named("full", limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Hour})).Handler(ok200)
		other := bound(t, l, limit.Named("other", second)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		outer := bound(t, l, limit.Named("outer", limit.Global(time.Hour, 100),
			limit.Rule{Name: "values", Key: limit.ByIP, Limit: 90, Window: time.Hour, Algorithm: limit.Distinct{Values: limit.ByHeader("V")}}))
		h := outer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			full.ServeHTTP(unsent{w}, r)
			if w.Header().Get("Retry-After") != "" {
				other.ServeHTTP(w, r)
			}
		}))
		for i := range 10 {
			send(h, "GET", "/", "V", fmt.Sprint(i))
		}
		want := map[string]int{"refused": 4}[name]
		if name != "refused" {
			want = 9
		}
		assert.Equal(t, want, served, name)
		assert.EqualValues(t, 99-want, left(t, l, "outer", "global-1h", ""), name)
		assert.EqualValues(t, 89-want, left(t, l, "outer", "values", "192.0.2.1"), name)
		assert.Equal(t, []string{"admitted", "admitted", "given back", "admitted"}, seen[:4], name)
	}
}

// TestLayersKeep has inner sets refuse requests that outer sets stay charged for, or settle.
func TestLayersKeep(t *testing.T) {
	for name, test := range map[string]struct {
		outer, inner limit.Rule
		left         int64 // of 100, after one admitted and one refused request
	}{
		"refused":         {limit.Rule{}, limit.Rule{}, 99},
		"busy":            {limit.Rule{}, limit.Rule{OnRefusal: limit.Refusal{Status: 503}}, 99},
		"redirected":      {limit.Rule{}, limit.Rule{OnRefusal: limit.Refusal{Redirect: "/busy"}}, 99},
		"degraded":        {limit.Rule{}, limit.Rule{OnRefusal: limit.Refusal{Degrade: true}}, 98},
		"a fallback":      {limit.Rule{}, limit.Rule{OnRefusal: limit.Refusal{Degrade: true, Fallback: ok200}}, 98},
		"attempts":        {limit.Rule{Attempts: true}, limit.Rule{}, 98},
		"settled":         {limit.Rule{Settle: rules.OnStatus(429)}, limit.Rule{}, 99},
		"settled as sent": {limit.Rule{Settle: rules.OnStatus(200)}, limit.Rule{}, 99},
	} {
		l := limit.New(nil, nil)
		test.outer.Name, test.outer.Key, test.outer.Limit, test.outer.Window = "outer", limit.Everyone, 100, time.Hour
		test.inner.Name, test.inner.Key, test.inner.Limit, test.inner.Window = "inner", limit.Everyone, 1, time.Hour
		h := l.Limit(limit.Named("outer", test.outer))(l.Limit(limit.Named("inner", test.inner))(ok200))
		sent(h, "/")
		sent(h, "/")
		assert.EqualValues(t, test.left, left(t, l, "outer", "outer", ""), name)
	}
}

// An unsent writer discards an answer, but not its header.
type unsent struct{ http.ResponseWriter }

func (unsent) WriteHeader(int)             {}
func (unsent) Write(p []byte) (int, error) { return len(p), nil }

// TestLayersNotGivenBack has a store give back nothing, or only a part before it fails:
// observers see what happened to each set, and the headers that are alike are told apart.
func TestLayersNotGivenBack(t *testing.T) {
	store := &unreturning{Store: memstore.New(nil)}
	var seen []string
	l := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler), Observe: func(_ *http.Request, d limit.Decision, err error) {
		if d.GivenBack || err != nil {
			seen = append(seen, fmt.Sprint(d.Policy, " ", err == nil))
		}
	}})
	named := func(name string, n int) *limit.Policy {
		list := make([]limit.Rule, n)
		for i := range list {
			list[i] = limit.Global(time.Duration(i+1)*time.Hour, 100)
		}
		return bound(t, l, limit.Named(name, list...))
	}
	inner := bound(t, l, limit.Named("inner", limit.Global(time.Hour, 1))).Handler(ok200)
	h := named("first", 9).Handler(named("second", 9).Handler(named("third", 9).Handler(inner)))
	sent(h, "/")
	store.most = 1
	w := sent(h, "/")
	assert.Equal(t, []string{"third true", "second true", "second false", "first false"}, seen)
	var shown []string
	for _, state := range w.Header()["Ratelimit"] {
		shown = append(shown, state[:len(`"global-1h";r=99`)])
	}
	assert.Equal(t, []string{`"global-1h";r=98`, `"global-1h";r=99`, `"global-1h";r=99`, `"global-1h";r=0;`}, shown)
	assert.EqualValues(t, 98, left(t, l, "first", "global-1h", ""))

	store.returns, store.nothing, seen = nil, true, nil
	sent(h, "/")
	assert.Empty(t, seen)
}

// TestLayersAroundTimeouts has http.TimeoutHandler stand between two sets, and give the
// inner one a response of its own. Handlers go on after the timeout, when the outer set has
// left.
func TestLayersAroundTimeouts(t *testing.T) {
	l := limit.New(nil, nil)
	outer := bound(t, l, limit.Named("outer", limit.Global(time.Hour, 10_000)))
	inner := bound(t, l, limit.Named("inner", limit.Global(time.Hour, 3)))
	served := new(atomic.Int64)
	serves := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })
	var going sync.WaitGroup
	going.Add(16 * 20)
	server := httptest.NewServer(outer.Handler(http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer going.Done()
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		inner.Handler(serves).ServeHTTP(w, r)
	}), 2*time.Millisecond, "")))
	defer server.Close()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 20 {
				if a, err := server.Client().Get(server.URL); assert.NoError(t, err) {
					a.Body.Close()
				}
			}
		})
	}
	clients.Wait()
	going.Wait()
	rest := left(t, l, "outer", "global-1h", "")
	assert.LessOrEqual(t, rest, int64(9_997))
	assert.Greater(t, rest, int64(9_997-320), "those refused in time")
	assert.EqualValues(t, 3, served.Load())

	// Parts of a handler have requests of their own, or responses.
	part := http.TimeoutHandler(inner.Handler(serves), time.Minute, "")
	h := outer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(r.Context(), "GET", "/", nil))
		inner.Handler(serves).ServeHTTP(httptest.NewRecorder(), r)
	}))
	sent(h, "/")
	assert.Equal(t, rest-1, left(t, l, "outer", "global-1h", ""))
}

// TestLayersAroundDisconnects has clients leave at any time, before, between and inside the
// sets. The outer set has lost what the handler has served.
func TestLayersAroundDisconnects(t *testing.T) {
	for name, rule := range map[string]limit.Rule{
		"refusals": {Limit: 5, Window: 20 * time.Millisecond},
		"waits":    {Limit: 5, Window: 20 * time.Millisecond, OnRefusal: limit.Refusal{Wait: 100 * time.Millisecond}},
		"slots":    {Limit: 5, Window: 20 * time.Millisecond, Algorithm: limit.Queue{Burst: 20}},
		"leases":   {Limit: 2, Algorithm: limit.Concurrency{}},
	} {
		l := limit.New(nil, nil)
		var served atomic.Int64
		rule.Key = limit.Everyone
		inner := bound(t, l, limit.Named("inner", rule)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			served.Add(1)
			time.Sleep(time.Millisecond)
		}))
		outer := bound(t, l, limit.Named("outer", limit.Global(time.Hour, 1_000), limit.Rule{Name: "values", Key: limit.Everyone, Limit: 1_000,
			Window: time.Hour, Algorithm: limit.Distinct{Values: limit.ByHeader("Value")}}))
		server := httptest.NewServer(outer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Duration(rand.IntN(2)) * time.Millisecond)
			inner.ServeHTTP(w, r)
		})))
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() {
				for i := range 25 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(20))*time.Millisecond)
					r, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
					r.Header.Set("Value", fmt.Sprint(c, i))
					if a, err := server.Client().Do(r); err == nil {
						a.Body.Close()
					}
					cancel()
				}
			})
		}
		clients.Wait()
		taken := func(rule string) int64 { return 1_000 - left(t, l, "outer", rule, "") }
		assert.Eventually(t, func() bool { return taken("global-1h") == served.Load() && taken("values") == served.Load() },
			10*time.Second, 10*time.Millisecond, name)
		server.Close()
	}
}

// TestLayersAroundResponsesOfTheirOwn has a handler between two sets make requests whose
// responses are its own. What it serves then is charged, whatever inner sets refuse.
func TestLayersAroundResponsesOfTheirOwn(t *testing.T) {
	type parts struct{ free, full, together http.Handler }
	timed := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "") }
	for name, test := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request, p parts)
		want  int64 // units of ten requests
	}{
		"a part refused behind a timeout": {func(_ http.ResponseWriter, r *http.Request, p parts) {
			timed(p.full).ServeHTTP(httptest.NewRecorder(), r.WithContext(r.Context()))
		}, 10},
		"another set tried after one behind a timeout": {func(_ http.ResponseWriter, r *http.Request, p parts) {
			timed(p.full).ServeHTTP(httptest.NewRecorder(), r)
			p.free.ServeHTTP(httptest.NewRecorder(), r)
		}, 10},
		"and one that is With the outer set": {func(_ http.ResponseWriter, r *http.Request, p parts) {
			timed(p.full).ServeHTTP(httptest.NewRecorder(), r)
			p.together.ServeHTTP(httptest.NewRecorder(), r)
		}, 10},
		"three parts With the outer set": {func(_ http.ResponseWriter, r *http.Request, p parts) {
			for range 3 {
				p.together.ServeHTTP(httptest.NewRecorder(), r.WithContext(r.Context()))
			}
		}, 30},
		"another set tried after a panic": {func(w http.ResponseWriter, r *http.Request, p parts) {
			func() {
				defer func() { _ = recover() }()
				p.free.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, "panics")))
			}()
			p.full.ServeHTTP(w, r)
		}, 10},
		"the answer of one part passed on": {func(w http.ResponseWriter, r *http.Request, p parts) {
			answer := httptest.NewRecorder()
			p.together.ServeHTTP(answer, r)
			w.WriteHeader(answer.Code)
		}, 10},
		"refused behind two timeouts": {func(w http.ResponseWriter, r *http.Request, p parts) {
			timed(timed(p.full)).ServeHTTP(w, r)
		}, 0},
	} {
		l := limit.New(nil, nil)
		outer := limit.Named("app", limit.Global(time.Hour, 100))
		serves := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Context().Value(userKey{}) == "panics" {
				panic("served half")
			}
		})
		p := parts{
			bound(t, l, limit.Named("free", limit.Global(time.Hour, 1000))).Handler(serves),
			bound(t, l, limit.Named("full", limit.Global(time.Hour, 1))).Handler(serves),
			bound(t, l, limit.Named("together", limit.PerIP(time.Hour, 1000)).With(outer)).Handler(serves),
		}
		sent(p.full, "/")
		h := bound(t, l, outer).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { test.serve(w, r, p) }))
		for range 10 {
			sent(h, "/")
		}
		assert.Equal(t, 100-test.want, left(t, l, "app", "global-1h", ""), name)
	}
}

// TestRequestsForOthers has a handler behind a set make requests for other users and plans, each
// with the context of its own. They are charged to those, and a request that is passed on keeps
// the answers that it was given.
func TestRequestsForOthers(t *testing.T) {
	for how, forUser := range map[string]func(w http.ResponseWriter, r *http.Request, user string) (http.ResponseWriter, *http.Request){
		"a request of its own": func(_ http.ResponseWriter, r *http.Request, user string) (http.ResponseWriter, *http.Request) {
			other := httptest.NewRequestWithContext(r.Context(), "GET", "/", nil)
			other.Header.Set("User", user)
			return httptest.NewRecorder(), other
		},
		"another user in its context": func(_ http.ResponseWriter, r *http.Request, user string) (http.ResponseWriter, *http.Request) {
			return httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		},
		"a part of its response": func(w http.ResponseWriter, r *http.Request, user string) (http.ResponseWriter, *http.Request) {
			other := r.Clone(r.Context())
			other.Header.Set("User", user)
			return w, other
		},
	} {
		asked := 0
		user := func(r *http.Request) string {
			asked++
			if of, ok := r.Context().Value(userKey{}).(string); ok {
				return of
			}
			return r.Header.Get("User")
		}
		l := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: user, Plan: user}})
		rule := limit.Rule{Key: limit.ByUser, Limit: 9, Window: time.Hour, Plans: map[string]int64{"bob": 2, "carol": 1}}
		served := make(map[string]int)
		each := l.Limit(limit.Named("each", rule))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served[user(r)]++ }))
		batch := l.Limit(limit.Named("batch", rule))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			each.ServeHTTP(w, r)
			for _, name := range []string{"bob", "bob", "bob", "carol"} {
				each.ServeHTTP(forUser(w, r, name))
			}
		}))
		for i := range 3 {
			send(batch, "GET", "/", "User", fmt.Sprint("alice", i))
		}
		assert.Equal(t, map[string]int{"alice0": 1, "alice1": 1, "alice2": 1, "bob": 2, "carol": 1}, served, how)
		assert.Equal(t, 3*(2+2*4)+6, asked, how)
	}
}

// TestCopiedRequest has middleware between two sets pass a copy of the request on, without what says
// whose it is: the inner set knows the caller as the outer one does.
func TestCopiedRequest(t *testing.T) {
	header := func(name string) func(*http.Request) string {
		return func(r *http.Request) string { return r.Header.Get(name) }
	}
	l := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: header("User"), Plan: header("Plan")}})
	rule := limit.PerUser(time.Hour, 100)
	rule.Plans = map[string]int64{"free": 2}
	served := make(map[string]int)
	inner := l.Limit(limit.Named("inner", rule))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served[r.URL.Path]++
	}))
	outer := l.Limit(limit.Named("outer", rule, limit.Global(time.Hour, 100)).OnRefusal(limit.Refusal{Mark: true}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header = http.Header{}
		inner.ServeHTTP(w, r)
	}))
	for range 5 {
		for _, user := range []string{"/alice", "/bob"} {
			send(outer, http.MethodGet, user, "User", user, "Plan", "free")
		}
	}
	assert.Equal(t, map[string]int{"/alice": 2, "/bob": 2}, served)
}
