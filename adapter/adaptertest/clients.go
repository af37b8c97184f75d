package adaptertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/throttle"
)

// forgedAddress sends every header in which a client might claim an address,
// to a limiter that trusts no proxy. Nothing may change.
func (s suite) forgedAddress(t *testing.T) {
	names := []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP",
		"X-Client-IP", "X-Cluster-Client-IP", "X-Forwarded", "Forwarded-For", "X-AppEngine-Remote-Addr", "Via"}
	limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
	c := serve(t, s.one(limiter, ok, limit.Rules(limit.PerIP(time.Hour, int64(len(names))))))

	for i, name := range names {
		address := fmt.Sprintf("203.0.113.%d", i)
		value := address
		if name == "Forwarded" {
			value = "for=" + address
		}
		a := c.send("GET", "/", name, value)
		require.Equal(t, http.StatusNoContent, a.StatusCode, name)
		require.Equal(t, fmt.Sprintf(`"per-ip-1h";r=%d;t=3600`, len(names)-1-i), a.Header.Get("RateLimit"), name)
	}
	for _, name := range names {
		require.Equal(t, http.StatusTooManyRequests, c.send("GET", "/", name, "203.0.113.200").StatusCode, name)
	}
}

type planKey struct{}

// callers checks that a rule has the limit of the caller's plan, which authentication
// has put into the context of the request; an override takes precedence, and an exempt
// caller is not charged. Headers and documents show the limit of the caller.
func (s suite) callers(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{
		Caller: limit.Caller[*http.Request]{
			User:  func(r *http.Request) string { return r.Header.Get("X-User") },
			Plan:  func(r *http.Request) string { plan, _ := r.Context().Value(planKey{}).(string); return plan },
			Class: func(r *http.Request) string { return r.Header.Get("X-Class") },
		},
		Override: func(_, rule, key string) int64 {
			if rule == "per-user-1m" && key == "dora" {
				return 4
			}
			return 0
		},
	})
	router := s.framework(limiter)
	router.Handle("GET", "/item", ok, limit.MustParse("1/1m per user plan pro 3 plan 2 2 exempt user root; 50/1m global reserve critical 40"))
	authenticated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		router.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, r.Header.Get("X-Plan"))))
	})
	c := serve(t, authenticated)

	const global = `"global-1m";q=50;w=60`
	for _, row := range []struct {
		user, plan, header string
		admits             int
	}{
		{"alice", "", `"per-user-1m";q=1;w=60, ` + global, 1},
		{"bob", "pro", `"per-user-1m";q=3;w=60, ` + global, 3},
		{"dora", "pro", `"per-user-1m";q=4;w=60, ` + global, 4},
	} {
		for n := range row.admits + 1 {
			a := c.send("GET", "/item", "X-User", row.user, "X-Plan", row.plan)
			if n < row.admits {
				require.Equal(t, http.StatusNoContent, a.StatusCode, a.body)
			} else {
				require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
			}
			assert.Equal(t, row.header, a.Header.Get("RateLimit-Policy"))
		}
	}
	for range 2 { // 8 are taken
		a := c.send("GET", "/item", "X-User", "root")
		require.Equal(t, http.StatusNoContent, a.StatusCode, a.body)
		assert.Equal(t, global, a.Header.Get("RateLimit-Policy"))
	}
	assert.Equal(t, http.StatusTooManyRequests, c.send("GET", "/item", "X-User", "root").StatusCode, "the rest is reserved")
	assert.Equal(t, http.StatusNoContent, c.send("GET", "/item", "X-User", "root", "X-Class", "critical").StatusCode)
}

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
	group := router.Group("/api", limit.Named("group", limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}}))
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
		assert.Equal(t, []string{"group", "item"}[i%2], d.Policy)
		assert.Empty(t, slices.Collect(d.Rules()))
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
		assert.Equal(t, []any{false, core.ModeBarred, "group", want.wait}, []any{d.Allowed, d.Mode, d.Policy, d.RetryAfter})
		assert.Empty(t, slices.Collect(d.Rules()))
		assert.Empty(t, routetest.Refused(d))
	}
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
