package adaptertest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/throttle"
)

// screening exempts and bars clients by a header, on a store that answers no call.
func screening(options limit.Options) *limit.Limiter {
	options.Exempt = func(c limit.Client) bool { return c.Request.Header.Get("X-Exempt") != "" }
	options.Bar = func(c limit.Client) time.Duration {
		switch c.Request.Header.Get("X-Bar") {
		case "":
			return 0
		case "for good":
			return limit.Never
		}
		return 90*time.Second + time.Millisecond
	}
	return limit.New(failingStore{err: errBroken}, &options)
}

// screened are the headers that rules, and refusals, set.
var screened = []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "Retry-After", "Cache-Control"}

// screenedGroup returns a client of a server that screens, with policies on a group and on
// its route, GET /api/item, and what Observe sees.
func (s suite) screenedGroup(t *testing.T, handler http.Handler) (client, *[]limit.Decision) {
	var seen []limit.Decision
	router := s.framework(screening(limit.Options{Headers: limit.Draft11 | limit.XRateLimit, Jitter: time.Hour,
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			seen = append(seen, d)
		}}))
	group := router.Group("/api", limit.Named("group", limit.Concurrent(limit.Everyone, 1)))
	group.Handle("GET", "/item", handler, limit.Named("item", limit.PerIP(time.Minute, 1)))
	return serve(t, router), &seen
}

// exempt checks that no rule is charged for an exempt request, whether it is barred
// or not, by a policy of its group or of its route.
func (s suite) exempt(t *testing.T) {
	c, seen := s.screenedGroup(t, ok)
	for range 3 {
		a := c.send("GET", "/api/item", "X-Exempt", "yes", "X-Bar", "for good")
		require.Equal(t, http.StatusNoContent, a.StatusCode, a.body)
		for _, name := range screened {
			assert.Empty(t, a.Header.Get(name), name)
		}
	}
	require.Len(t, *seen, 6)
	for i, d := range *seen {
		assert.True(t, d.Allowed)
		assert.Equal(t, core.ModeExempt, d.Mode)
		assert.Equal(t, []string{"group", "item"}[i%2], d.Policy())
		assert.Empty(t, d.Rules())
		assert.WithinDuration(t, time.Now(), d.At, time.Minute)
	}
}

// barred checks the answer to a barred request, which comes without a call of the store.
func (s suite) barred(t *testing.T) {
	c, seen := s.screenedGroup(t, mustNotRun(t))
	for bar, want := range map[string]struct {
		detail, after string
		wait          time.Duration
	}{
		"a while":  {"Try again in 91 s.", "91", 90*time.Second + time.Millisecond},
		"for good": {"", "", limit.Never},
	} {
		*seen = nil
		a := c.send("GET", "/api/item", "X-Bar", bar)
		assert.Equal(t, problem{Type: "about:blank", Title: "Forbidden", Status: 403, Detail: want.detail},
			requireProblem(t, a, http.StatusForbidden))
		assert.Equal(t, want.after, a.Header.Get("Retry-After"), "exact, whatever the jitter")
		for _, name := range screened[:3] {
			assert.Empty(t, a.Header.Get(name), name)
		}
		require.Len(t, *seen, 1, "the first policy answers")
		d := (*seen)[0]
		assert.Equal(t, []any{false, core.ModeBarred, "group", want.wait}, []any{d.Allowed, d.Mode, d.Policy(), d.RetryAfter})
		assert.Empty(t, d.Rules())
		assert.Empty(t, d.Refusing())
	}
}

// notBarred checks that other requests are decided by the rules.
func (s suite) notBarred(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{
		Exempt: func(limit.Client) bool { return false },
		Bar:    func(limit.Client) time.Duration { return -1 },
	})
	serve(t, s.one(limiter, ok, limit.Rules(limit.PerIP(time.Minute, 1)))).expect("GET", "/", 204, 429)
}

// screenedBodies checks that the bodies of exempt requests are not slowed, and those
// of barred ones end with an error.
func (s suite) screenedBodies(t *testing.T) {
	var failed error
	rule := throttle.Bandwidth(limit.ByIP, time.Hour, 1000)
	router := s.framework(screening(limit.Options{}))
	router.Throttle("POST", "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, failed = io.Copy(w, r.Body)
	}), limit.Named("bytes", rule), &throttle.Options{Of: throttle.Both})
	post := func(header string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(make([]byte, 1<<20)))
		r.Header.Set(header, "for good")
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w
	}

	assert.Equal(t, 1<<20, post("X-Exempt").Body.Len())
	assert.NoError(t, failed)
	assert.Empty(t, post("X-Bar").Body.String())
	var refused *limit.RefusedError
	require.ErrorAs(t, failed, &refused)
	assert.EqualError(t, refused, "limit: the client is barred")
}
