package adaptertest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

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
