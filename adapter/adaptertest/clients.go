package adaptertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/throttle"
)

type planKey struct{}

// authenticated puts the plan of a caller into the context of its requests.
func authenticated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, r.Header.Get("X-Plan"))))
	})
}

// callers is a flow in which a rule has the limit of the caller's plan, an override takes
// precedence, and an exempt caller is not charged.
func callers() flow {
	const global = `"global-1m";q=50;w=60`
	by := func(user, plan string, most int, statuses ...int) step {
		return send("GET /item", statuses...).from("X-User", user, "X-Plan", plan).
			says("RateLimit-Policy", fmt.Sprintf(`"per-user-1m";q=%d;w=60, `, most)+global)
	}
	return flow{name: "callers", options: limit.Options{
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
	}, declare: on("GET /item", limit.MustParse(
		"1/1m per user plan pro 3 plan 2 2 exempt user root; 50/1m global reserve critical 40",
	)), steps: []step{
		by("alice", "", 1, 204, 429),
		by("bob", "pro", 3, 204, 204, 204, 429),
		by("dora", "pro", 4, 204, 204, 204, 204, 429),
		send("GET /item", 204, 204).from("X-User", "root").says("RateLimit-Policy", global), // 8 were taken
		send("GET /item", 429).from("X-User", "root").by("global-1m"),                       // the rest is reserved
		send("GET /item", 204).from("X-User", "root", "X-Class", "critical"),
	}}
}

// screening exempts and bars clients by a header.
func screening(options limit.Options) limit.Options {
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
	return options
}

// screenedBodies checks that the bodies of exempt requests are not slowed, and those
// of barred ones end with an error.
func (s suite) screenedBodies(t *testing.T) {
	var failed error
	rule := throttle.Bandwidth(limit.ByIP, time.Hour, 1000)
	router := s.framework(failing(screening(limit.Options{})))
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

// clients are flows about who sends a request.
func clients() []flow {
	// Clients send every header in which they might claim an address, to a limiter that trusts no
	// proxy. Nothing changes.
	names := []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP",
		"X-Client-IP", "X-Cluster-Client-IP", "X-Forwarded", "Forwarded-For", "X-AppEngine-Remote-Addr", "Via"}
	forged := flow{name: "forged address", declare: on("GET /", limit.Rules(limit.PerIP(time.Hour, int64(len(names))))),
		notices: []string{"code=" + notice.UntrustedProxy}}
	for i, name := range names {
		value := fmt.Sprintf("203.0.113.%d", i)
		if name == "Forwarded" {
			value = "for=" + value
		}
		forged.steps = append(forged.steps,
			send("GET /", 204).from(name, value).says("RateLimit", fmt.Sprintf(`"per-ip-1h";r=%d;t=3600`, len(names)-1-i)))
	}
	for _, name := range names {
		forged.steps = append(forged.steps, send("GET /", 429).from(name, "203.0.113.200"))
	}

	// No rule is charged for an exempt request, whether it is barred or not, and none for a barred
	// one: the store answers no call. The first policy answers a barred request, and its
	// Retry-After is exact, whatever the jitter.
	screened := func(name string, steps []step, seen ...string) flow {
		return flow{name: name, store: failingStore{err: errBroken}, steps: steps, seen: seen,
			options: screening(limit.Options{Headers: limit.Draft11 | limit.XRateLimit, Jitter: time.Hour}),
			declare: func(r Router, h http.Handler) {
				group := r.Group("/api", limit.Named("group", limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}}))
				group.Handle("GET", "/item", h, limit.Named("item", limit.PerIP(time.Minute, 1)))
			}}
	}
	barred := func(bar, detail, after string) step {
		return send("GET /api/item", 403).from("X-Bar", bar).
			with(problem{Type: "about:blank", Title: "Forbidden", Status: 403, Detail: detail}).
			says("Retry-After", after, "RateLimit", "", "RateLimit-Policy", "", "X-RateLimit-Limit", "")
	}
	exempt := send("GET /api/item", 204, 204, 204).from("X-Exempt", "yes", "X-Bar", "for good").
		says("RateLimit", "", "RateLimit-Policy", "", "X-RateLimit-Limit", "", "Retry-After", "", "Cache-Control", "")
	told := []string{"group admitted mode=exempt []", "item admitted mode=exempt []"}
	return []flow{forged, callers(),
		screened("exempt", []step{exempt}, slices.Repeat(told, 3)...),
		screened("barred", []step{barred("a while", "Try again in 91 s.", "91"), barred("for good", "", "")},
			"group refused mode=barred 1m30.001s []", fmt.Sprint("group refused mode=barred ", limit.Never, " []")),
	}
}
