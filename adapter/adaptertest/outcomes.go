package adaptertest

import (
	"encoding/json"
	"fmt"
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

// problem is the body of a refusal.
type problem struct {
	Type     string           `json:"type"`
	Title    string           `json:"title"`
	Status   int              `json:"status"`
	Detail   string           `json:"detail"`
	Violated []string         `json:"violated-policies"`
	Limits   map[string]int64 `json:"limits"` // of callers, where these differ
}

func requireProblem(t *testing.T, a answer, status int) problem {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	assert.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	assert.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	assert.True(t, strings.HasSuffix(a.body, "}\n"), "the body ends with a line feed: %q", a.body)
	var p problem
	fields := json.NewDecoder(strings.NewReader(a.body))
	fields.DisallowUnknownFields() // clients do not learn more
	require.NoError(t, fields.Decode(&p), a.body)
	assert.Equal(t, status, p.Status)
	return p
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

// refusals are flows that show what refused requests meet.
func refusals() []flow {
	const policies = `"per-ip-1m";q=5;w=60, "global-1h";q=1000;w=3600`
	quotaExceeded := problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Quota exceeded",
		Status:   429,
		Detail:   "Try again in 60 s.",
		Violated: []string{"per-ip-1m"},
	}
	answers := flow{name: "refusal", declare: on("POST /update",
		limit.Rules(limit.PerIP(time.Minute, 5), limit.Global(time.Hour, 1000)))}
	for i := range 5 { // caching of an admitted request is up to its handler
		answers.steps = append(answers.steps, send("POST /update", 204).says("Retry-After", "", "Cache-Control", "",
			"RateLimit-Policy", policies, "RateLimit", fmt.Sprintf(`"per-ip-1m";r=%d;t=60, "global-1h";r=%d;t=3600`, 4-i, 999-i)))
	}
	answers.steps = append(answers.steps, send("POST /update", 429).with(quotaExceeded).says("Retry-After", "60",
		"RateLimit-Policy", policies, "RateLimit", `"per-ip-1m";r=0;t=60, "global-1h";r=995;t=3600`))

	// A rule answers with another status, or sends requests to another place: from a route, a
	// group and the whole router, those without a route too.
	at := func(location string, status int) limit.Refusal {
		return limit.Refusal{Redirect: location, Status: status}
	}
	attempts := func(name string, n int64, refusal limit.Refusal) limit.RuleSet {
		return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: n, Window: time.Hour,
			Attempts: true, OnRefusal: refusal})
	}
	sentTo := func(status int, location string) step {
		return send("POST /api/item", status).says("Location", location, "Cache-Control", "no-store", "Retry-After", "3600")
	}
	return []flow{answers,
		{name: "busy", declare: on("GET /", limit.Rules(once("capacity", limit.Refusal{Status: 503}))), steps: []step{
			send("GET /", 204),
			send("GET /", 503).with(reducedCapacity("Temporarily reduced capacity", "Try again in 3600 s.", "capacity")).
				says("Retry-After", "3600", "RateLimit", `"capacity";r=0;t=3600`),
		}, seen: []string{"admitted", "refused"}},
		{name: "redirects", declare: func(r Router, h http.Handler) {
			r.Use(attempts("all", 3, at("/all", 307)))
			group := r.Group("/api", attempts("group", 2, at("https://example.com/group", 302)))
			group.Handle("POST", "/item", h, limit.Rules(once("route", at("/route?a=b", 0))))
		}, steps: []step{
			send("POST /api/item", 204),
			sentTo(303, "/route?a=b"), sentTo(302, "https://example.com/group"), sentTo(307, "/all"),
			send("GET /nowhere", 307),
		}, seen: strings.Fields("admitted admitted admitted " +
			"admitted admitted redirected admitted redirected redirected redirected")},
	}
}

// reducedCapacity is the document of a request that is refused with 503.
func reducedCapacity(title, detail string, violated ...string) problem {
	return problem{"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", title, 503,
		detail, violated, nil}
}

// degraded are flows of requests that run another handler than they ask for, or that rules only
// watch. Handlers that see another outcome than they should answer with 500.
func degraded() (list []flow) {
	expecting := func(outcome string, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if limit.DecisionFrom(r.Context()).Outcome() != outcome {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	// The handlers behind the rules do not run, and the rules behind it are not charged.
	for body, fallback := range map[string]http.HandlerFunc{
		"202 cached": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.Write([]byte("cached"))
		},
		"200 cached": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("cached")) },
		"200 ":       silent,
	} {
		status, _ := strconv.Atoi(body[:3])
		served := func(request string) step {
			return send(request, status).answers(body[4:]).
				says("RateLimit", `"all";r=0;t=3600`, "Retry-After", "", "Cache-Control", "")
		}
		list = append(list, flow{name: "degrades to " + body, declare: func(r Router, h http.Handler) {
			r.Use(limit.Named("all", once("all", limit.Refusal{Degrade: true, Fallback: expecting("degraded", fallback)})))
			r.Handle("GET", "/", expecting("admitted", h), rule("route", limit.Everyone, 9))
		}, steps: []step{send("GET /", 204), served("GET /"), served("GET /nowhere")},
			seen: strings.Fields("admitted admitted degraded degraded")})
	}
	// Clients and handlers see marks, and not shadows.
	watched := func(marked string) step {
		return send("GET /", 204).says("RateLimit", `"outer";r=0;t=3600, "inner";r=0;t=3600`, "Retry-After", "",
			"RateLimit-Policy", `"outer";q=1;w=3600, "inner";q=1;w=3600`, "RateLimit-Marked", marked, "X-Marked", marked)
	}
	return append(list, flow{name: "watches", declare: func(r Router, h http.Handler) {
		r.Use(limit.Named("outer", once("outer", limit.Refusal{Mark: true}),
			limit.Rule{Name: "shadow", Key: limit.Everyone, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{}}))
		r.Handle("GET", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Marked", strings.Join(routetest.Marked(limit.DecisionFrom(r.Context())), ", "))
			h.ServeHTTP(w, r)
		}), limit.Rules(once("inner", limit.Refusal{Mark: true})))
	}, steps: []step{watched(""), watched("outer, inner")}, seen: strings.Fields("admitted admitted marked marked")})
}
