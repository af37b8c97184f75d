package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// problem is what a refused client reads.
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
	assert.True(t, strings.HasSuffix(a.body, "}\n"), "a prompt stands on a line of its own: %q", a.body)
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
		assert.Empty(t, a.Header.Get("Cache-Control"), "not ours to say of an admitted request")
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

// retryAfter waits as long as it is told, and is admitted.
func (s suite) retryAfter(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	router.Handle("GET", "/", ok, limit.Rules(limit.PerIP(500*time.Millisecond, 1)))
	c := serve(t, router)

	require.Equal(t, http.StatusNoContent, c.send("GET", "/").StatusCode)
	a := c.send("GET", "/")
	require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
	require.Equal(t, "1", a.Header.Get("Retry-After"), "rounded up")
	assert.Equal(t, `"per-ip-500ms";q=1`, a.Header.Get("RateLimit-Policy"), "w is whole seconds, or not said")
	time.Sleep(time.Second)
	assert.Equal(t, http.StatusNoContent, c.send("GET", "/").StatusCode)
}

// allOrNothing checks that a request that one rule refuses spends nothing of
// another, in either order of the rules.
func (s suite) allOrNothing(t *testing.T) {
	strict, loose := limit.Per(limit.ByHeader("X-Key"), time.Hour, 1), limit.Global(time.Hour, 3)
	for _, rules := range []limit.RuleSet{limit.Rules(strict, loose), limit.Rules(loose, strict)} {
		router := s.framework(limit.New(nil, nil))
		router.Handle("GET", "/", ok, rules)
		c := serve(t, router)

		require.Equal(t, http.StatusNoContent, c.send("GET", "/", "X-Key", "a").StatusCode)
		for range 10 {
			require.Equal(t, http.StatusTooManyRequests, c.send("GET", "/", "X-Key", "a").StatusCode)
		}
		for _, key := range []string{"b", "c"} {
			require.Equal(t, http.StatusNoContent, c.send("GET", "/", "X-Key", key).StatusCode, "the refused spent the others' quota")
		}
		p := requireProblem(t, c.send("GET", "/", "X-Key", "d"), http.StatusTooManyRequests)
		assert.Equal(t, []string{"global-1h"}, p.Violated)
		p = requireProblem(t, c.send("GET", "/", "X-Key", "a"), http.StatusTooManyRequests)
		assert.ElementsMatch(t, []string{"global-1h", "per-header-x-key-1h"}, p.Violated)
	}
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
			router := s.framework(limit.New(nil, &limit.Options{Headers: test.style}))
			router.Handle("GET", "/", ok, limit.Rules(
				limit.Rule{Name: "ip", Key: limit.ByIP, Limit: 2, Window: time.Minute},
				limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour}))
			c := serve(t, router)

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

func (s suite) refuseHook(t *testing.T) {
	var seen atomic.Pointer[limit.Decision]
	router := s.framework(limit.New(nil, &limit.Options{
		Refuse: func(w http.ResponseWriter, r *http.Request, d limit.Decision) {
			seen.Store(&d)
			w.Header().Set("Location", "/wait?from="+r.URL.Path)
			w.WriteHeader(http.StatusSeeOther)
			w.Write([]byte("later"))
		},
	}))
	router.Handle("GET", "/busy", ok, limit.Rules(limit.Global(time.Minute, 1)))
	router.Handle("GET", "/wait", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("waiting room")) }))
	c := serve(t, router)

	require.Equal(t, http.StatusNoContent, c.send("GET", "/busy").StatusCode)
	require.Nil(t, seen.Load())
	a := c.send("GET", "/busy")
	assert.Equal(t, "waiting room", a.body, "the client follows the redirect")
	require.NotNil(t, seen.Load())
	assert.False(t, seen.Load().Allowed)
	assert.Equal(t, []string{"global-1m"}, seen.Load().Refusing())
	assert.Equal(t, "60", a.Request.Response.Header.Get("Retry-After"), "set before the function")
}

func (s suite) observe(t *testing.T) {
	type event struct {
		path, policy string
		allowed      bool
	}
	events := make(chan event, 3)
	router := s.framework(limit.New(nil, &limit.Options{
		Observe: func(r *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			events <- event{r.URL.Path, d.Policy(), d.Allowed}
		},
	}))
	router.Handle("GET", "/seen", ok, limit.Named("seen", limit.Global(time.Minute, 1)))
	router.Handle("GET", "/free", ok)
	c := serve(t, router)

	c.send("GET", "/seen")
	c.send("GET", "/free")
	c.send("GET", "/seen")
	require.Len(t, events, 2, "once for each decision")
	assert.Equal(t, event{"/seen", "seen", true}, <-events)
	assert.Equal(t, event{"/seen", "seen", false}, <-events)
}

// brokenStore is a store that cannot decide.
type brokenStore struct{}

var errBroken = errors.New("the disk is on fire")

func (brokenStore) Take(context.Context, string, []core.Charge) (core.Decision, error) {
	return core.Decision{}, errBroken
}

func (brokenStore) Renew(context.Context, string, []core.Charge) ([]bool, error) {
	return nil, errBroken
}

func (brokenStore) Release(context.Context, string, []core.Charge) error { return errBroken }

func (brokenStore) Return(context.Context, string, []core.Return) ([]int64, error) {
	return nil, errBroken
}

func (brokenStore) Reset(context.Context, string, string, string) error { return errBroken }

func (s suite) storeFails(t *testing.T) {
	var observed atomic.Int32
	router := s.framework(limit.New(brokenStore{}, &limit.Options{
		Headers: limit.Draft11 | limit.XRateLimit,
		Refuse: func(http.ResponseWriter, *http.Request, limit.Decision) {
			t.Error("a request that nobody decided is not a refused one")
		},
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			observed.Add(1)
			assert.ErrorIs(t, err, limit.ErrUndecided)
			assert.ErrorIs(t, err, errBroken)
			assert.False(t, d.Allowed)
		},
	}))
	router.Handle("GET", "/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the handler runs uncounted")
	}), limit.Rules(limit.PerIP(time.Minute, 5)))
	c := serve(t, router)

	a := c.send("GET", "/")
	p := requireProblem(t, a, http.StatusServiceUnavailable)
	assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", p.Type)
	assert.Equal(t, "1", a.Header.Get("Retry-After"))
	assert.Empty(t, a.Header.Get("RateLimit"))
	assert.Empty(t, a.Header.Get("X-RateLimit-Limit"))
	assert.NotContains(t, a.body, "fire", "clients do not learn why")
	assert.EqualValues(t, 1, observed.Load())
}

// head checks that a refused HEAD has the headers and no body.
func (s suite) head(t *testing.T) {
	router := s.framework(limit.New(nil, nil))
	router.Handle("HEAD", "/", ok, limit.Rules(limit.PerIP(time.Minute, 1)))
	c := serve(t, router)

	require.Equal(t, http.StatusNoContent, c.send("HEAD", "/").StatusCode)
	a := c.send("HEAD", "/")
	assert.Equal(t, http.StatusTooManyRequests, a.StatusCode)
	assert.Equal(t, "60", a.Header.Get("Retry-After"))
	assert.Empty(t, a.body)
}

// FiveInTwoSeconds checks a fresh route with the rules of the documentation:
// five requests of a client pass, and the sixth is refused.
func FiveInTwoSeconds(t *testing.T, url string) {
	t.Helper()
	start := time.Now()
	for i := range 6 {
		response, err := http.Post(url, "", nil)
		require.NoError(t, err)
		response.Body.Close()
		if time.Since(start) > time.Second {
			t.Skip("the machine is too slow for six requests a second")
		}
		if i < 5 {
			require.Less(t, response.StatusCode, 300)
			continue
		}
		require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
		assert.Equal(t, "2", response.Header.Get("Retry-After"))
		assert.Equal(t, `"per-ip-2s";r=0;t=2, "global-1m";r=995;t=60`, response.Header.Get("RateLimit"))
	}
}
