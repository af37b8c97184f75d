package adaptertest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// once returns a rule that admits one request, and what the others meet.
func once(name string, refusal limit.Refusal) limit.Rule {
	return limit.Rule{Name: name, Key: limit.Everyone, Limit: 1, Window: time.Hour, OnRefusal: refusal}
}

// observed returns a limiter, and the outcomes of its decisions.
func observed(t *testing.T) (*limit.Limiter, *[]string) {
	var outcomes []string
	return limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, err error) {
		assert.NoError(t, err)
		outcomes = append(outcomes, d.Outcome())
	}}), &outcomes
}

// busy answers with 503 because the rule says so.
func (s suite) busy(t *testing.T) {
	limiter, outcomes := observed(t)
	c := serve(t, s.one(limiter, ok, limit.Rules(once("capacity", limit.Refusal{Status: http.StatusServiceUnavailable}))))

	require.Equal(t, http.StatusNoContent, c.send("GET", "/").StatusCode)
	a := c.send("GET", "/")
	p := requireProblem(t, a, http.StatusServiceUnavailable)
	assert.Equal(t, problem{
		Type:     "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		Title:    "Temporarily reduced capacity",
		Status:   503,
		Detail:   "Try again in 3600 s.",
		Violated: []string{"capacity"},
	}, p)
	assert.Equal(t, "3600", a.Header.Get("Retry-After"))
	assert.Equal(t, `"capacity";r=0;t=3600`, a.Header.Get("RateLimit"))
	assert.Equal(t, []string{"admitted", "refused"}, *outcomes)
}

// redirects sends refused requests to another place, from a route, a group and the
// whole router. Refuse of limit.Options has nothing to answer.
func (s suite) redirects(t *testing.T) {
	limiter, outcomes := observed(t)
	router := s.framework(limiter)
	at := func(location string, status int) limit.Refusal {
		return limit.Refusal{Redirect: location, Status: status}
	}
	router.Use(limit.Named("all", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 3, Window: time.Hour, Attempts: true,
		OnRefusal: at("/all", 307)}))
	group := router.Group("/api", limit.Named("group", limit.Rule{Name: "group", Key: limit.Everyone, Limit: 2, Window: time.Hour, Attempts: true,
		OnRefusal: at("https://example.com/group", 302)}))
	ran := 0
	group.Handle("POST", "/item", counting(&ran), limit.Rules(once("route", at("/route?a=b", 0))))
	c := serve(t, router)
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	require.Equal(t, http.StatusNoContent, c.send("POST", "/api/item").StatusCode)
	for _, want := range []struct {
		status   int
		location string
	}{{303, "/route?a=b"}, {302, "https://example.com/group"}, {307, "/all"}} {
		a := c.send("POST", "/api/item")
		assert.Equal(t, want.status, a.StatusCode)
		assert.Equal(t, []string{want.location}, a.Header.Values("Location"))
		assert.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		assert.Equal(t, "3600", a.Header.Get("Retry-After"))
		assert.Empty(t, a.body)
	}
	a := c.send("GET", "/nowhere")
	assert.Equal(t, 307, a.StatusCode, "requests without a route too")
	assert.Empty(t, a.body)
	assert.Equal(t, 1, ran)
	assert.Equal(t, []string{"admitted", "admitted", "admitted", "admitted", "admitted", "redirected", "admitted", "redirected",
		"redirected", "redirected"}, *outcomes)
}

// degradesToFallback serves refused requests with another handler. The handlers behind
// the rules do not run, and the rules behind it are not charged.
func (s suite) degradesToFallback(t *testing.T) {
	for _, fallback := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
		body    string
	}{
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.Write([]byte("cached\n"))
		}, 202, "cached\n"},
		{"body alone", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("cached\n")) }, 200, "cached\n"},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 200, ""},
	} {
		limiter, outcomes := observed(t)
		router := s.framework(limiter)
		ran := 0
		router.Use(limit.Named("all", once("all", limit.Refusal{Degrade: true, Fallback: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.True(t, limit.DecisionFrom(r.Context()).Outcome() == "degraded")
			fallback.handler(w, r)
		})})))
		router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran++
			assert.False(t, limit.DecisionFrom(r.Context()).Outcome() == "degraded")
			ok(w, r)
		}), rule("route", limit.Everyone, 9))
		c := serve(t, router)

		require.Equal(t, http.StatusNoContent, c.send("GET", "/").StatusCode)
		for _, path := range []string{"/", "/nowhere"} {
			a := c.send("GET", path)
			assert.Equal(t, fallback.status, a.StatusCode, fallback.name)
			assert.Equal(t, fallback.body, a.body, fallback.name)
			assert.Equal(t, `"all";r=0;t=3600`, a.Header.Get("RateLimit"))
			assert.Empty(t, a.Header.Get("Retry-After"), "it was answered")
			assert.Empty(t, a.Header.Get("Cache-Control"), "that is up to the fallback")
		}
		assert.Equal(t, 1, ran)
		assert.Equal(t, []string{"admitted", "admitted", "degraded", "degraded"}, *outcomes)
	}
}

// degradesTheHandler runs the handler of refused requests, which holds no lease then and
// settles nothing. Other policies on the request decide as ever.
func (s suite) degradesTheHandler(t *testing.T) {
	limiter, outcomes := observed(t)
	router := s.framework(limiter)
	var settled atomic.Int32
	degrade := limit.Refusal{Degrade: true}
	costly := once("costly", degrade)
	costly.Settle = rules.SettleBy("units", func(*http.Request, int) int64 { settled.Add(1); return 1 })
	slots := limit.Rule{Key: limit.Everyone, Limit: 5, Algorithm: limit.Concurrency{}}
	slots.Name, slots.OnRefusal = "slots", degrade
	outer := limit.Named("outer", costly, slots)
	router.Use(outer)
	router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Nil(t, limit.DecisionFrom(r.Context()).Lost(), "no lease")
		w.WriteHeader(map[bool]int{true: http.StatusPartialContent, false: http.StatusNoContent}[limit.DecisionFrom(r.Context()).Outcome() == "degraded"])
	}), limit.Rules(limit.Rule{Name: "inner", Key: limit.Everyone, Limit: 1, Window: time.Hour}))
	policy, err := limiter.Policy(outer)
	require.NoError(t, err)
	d, err := policy.Take(t.Context(), limit.Request{Cost: 1, Costs: map[string]int64{"slots": 0}, Settle: true})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	c := serve(t, router)

	a := c.send("GET", "/")
	assert.Equal(t, http.StatusPartialContent, a.StatusCode)
	assert.Equal(t, `"costly";r=0;t=3600, "slots";r=5, "inner";r=0;t=3600`, strings.Join(a.Header.Values("RateLimit"), ", "))
	requireProblem(t, c.send("GET", "/"), http.StatusTooManyRequests)
	assert.Equal(t, []string{"admitted", "degraded", "admitted", "degraded", "refused"}, *outcomes)
	assert.Zero(t, settled.Load())
}

// watches admits requests that rules only watch: marked ones, which clients and handlers
// see, and shadows, which they do not.
func (s suite) watches(t *testing.T) {
	limiter, outcomes := observed(t)
	router := s.framework(limiter)
	router.Use(limit.Named("outer", once("outer", limit.Refusal{Mark: true}),
		limit.Rule{Name: "shadow", Key: limit.Everyone, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{}}))
	var marked [][]string
	router.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		marked = append(marked, routetest.Marked(limit.DecisionFrom(r.Context())))
		ok(w, r)
	}), limit.Rules(once("inner", limit.Refusal{Mark: true})))
	c := serve(t, router)

	for range 2 {
		a := c.send("GET", "/")
		assert.Equal(t, http.StatusNoContent, a.StatusCode)
		assert.Equal(t, `"outer";r=0;t=3600, "inner";r=0;t=3600`, strings.Join(a.Header.Values("RateLimit"), ", "))
		assert.Equal(t, `"outer";q=1;w=3600, "inner";q=1;w=3600`, strings.Join(a.Header.Values("RateLimit-Policy"), ", "))
		assert.Empty(t, a.Header.Get("Retry-After"))
		if len(marked) == 1 {
			assert.Empty(t, a.Header.Values("RateLimit-Marked"))
		} else {
			assert.Equal(t, "outer, inner", strings.Join(a.Header.Values("RateLimit-Marked"), ", "))
		}
	}
	assert.Equal(t, [][]string{nil, {"outer", "inner"}}, marked)
	assert.Equal(t, []string{"admitted", "admitted", "marked", "marked"}, *outcomes)
}

// problem is the body of a refusal.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies"`
}

func requireProblem(t *testing.T, a answer, status int) problem {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	assert.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	assert.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	assert.True(t, strings.HasSuffix(a.body, "}\n"), "the body ends with a line feed: %q", a.body)
	var p problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	assert.Equal(t, status, p.Status)
	return p
}

func (s suite) refusal(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	router.Handle("POST", "/update", ok, limit.Rules(limit.PerIP(time.Minute, 5), limit.Global(time.Hour, 1000)))
	c := serve(t, router)

	const policies = `"per-ip-1m";q=5;w=60, "global-1h";q=1000;w=3600`
	for i := range 5 {
		a := c.send("POST", "/update")
		require.Equal(t, http.StatusNoContent, a.StatusCode, a.body)
		assert.Equal(t, policies, a.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"per-ip-1m";r=`+strconv.Itoa(4-i)+`;t=60, "global-1h";r=`+strconv.Itoa(999-i)+`;t=3600`,
			a.Header.Get("RateLimit"))
		assert.Empty(t, a.Header.Get("Retry-After"))
		assert.Empty(t, a.Header.Get("Cache-Control"), "caching of an admitted request is up to its handler")
	}
	a := c.send("POST", "/update")
	p := requireProblem(t, a, http.StatusTooManyRequests)
	assert.Equal(t, problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Quota exceeded",
		Status:   429,
		Detail:   "Try again in 60 s.",
		Violated: []string{"per-ip-1m"},
	}, p)
	assert.Equal(t, "60", a.Header.Get("Retry-After"))
	assert.Equal(t, policies, a.Header.Get("RateLimit-Policy"))
	assert.Equal(t, `"per-ip-1m";r=0;t=60, "global-1h";r=995;t=3600`, a.Header.Get("RateLimit"))
}

// retryAfter waits for as long as Retry-After says, and is admitted.
func (s suite) retryAfter(t *testing.T) {
	router := s.one(limit.New(nil, nil), ok, limit.Rules(limit.PerIP(500*time.Millisecond, 1)))

	require.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
	w := do(t.Context(), router)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"), "rounded up")
	assert.Equal(t, `"per-ip-500ms";q=1`, w.Header().Get("RateLimit-Policy"), "a window of half a second is left out")
	time.Sleep(time.Second)
	assert.Equal(t, http.StatusNoContent, do(t.Context(), router).Code)
}

func (s suite) headerStyles(t *testing.T) {
	fields := []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
	draft := []string{`"ip";r=1;t=60, "all";r=9;t=3600`, `"ip";q=2;w=60, "all";q=10;w=3600`, "", "", ""}
	trio := []string{"", "", "2", "1", "60"}
	for _, test := range []struct {
		name  string
		style limit.Headers
		want  []string
	}{
		{"zero", 0, draft},
		{"Draft11", limit.Draft11, draft},
		{"XRateLimit", limit.XRateLimit, trio},
		{"both", limit.Draft11 | limit.XRateLimit, append(draft[:2:2], trio[2:]...)},
		{"NoHeaders", limit.NoHeaders, make([]string, 5)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, s.one(limit.New(nil, &limit.Options{Headers: test.style}), ok, limit.Rules(
				limit.Rule{Name: "ip", Key: limit.ByIP, Limit: 2, Window: time.Minute},
				limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour})))

			a := c.send("GET", "/")
			for i, field := range fields {
				assert.Equal(t, test.want[i], a.Header.Get(field), field)
			}
			c.send("GET", "/")
			a = c.send("GET", "/")
			requireProblem(t, a, http.StatusTooManyRequests)
			assert.Equal(t, "60", a.Header.Get("Retry-After"), "whatever the style")
			if test.style&limit.XRateLimit != 0 {
				assert.Equal(t, "0", a.Header.Get("X-RateLimit-Remaining"))
			}
		})
	}
}
