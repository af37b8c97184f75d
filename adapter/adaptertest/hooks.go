package adaptertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/routetest"
)

// hooks replaces the answers to requests that are not admitted. A function that does not
// call WriteHeader answers with the status of the answer that it replaces.
func (s suite) hooks(t *testing.T) {
	for _, test := range []struct {
		name       string
		limiter    func(limit.Options) *limit.Limiter
		status     int
		retryAfter string
		admitted   int
	}{
		{"refused", func(o limit.Options) *limit.Limiter { return limit.New(nil, &o) }, http.StatusTooManyRequests, "60", 1},
		{"barred", func(o limit.Options) *limit.Limiter { return failing(screening(o)) }, http.StatusForbidden, "91", 0},
		{"undecided", failing, http.StatusServiceUnavailable, "1", 0},
	} {
		for _, set := range []struct {
			status int
			body   string
		}{{0, ""}, {0, "later"}, {http.StatusBadGateway, "later"}, {http.StatusNotFound, "no"}, {http.StatusSeeOther, "elsewhere"}} {
			ran, replaced := 0, ""
			answer := func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/plain")
				if set.status != 0 {
					w.WriteHeader(set.status)
				}
				if set.body != "" {
					w.Write([]byte(set.body))
				}
			}
			c := serve(t, s.one(test.limiter(limit.Options{
				Log: slog.New(slog.DiscardHandler),
				Refuse: func(w http.ResponseWriter, _ *http.Request, d limit.Decision) {
					replaced = "refused"
					if d.Mode == core.ModeBarred {
						replaced = "barred"
					} else {
						assert.Equal(t, []string{"global-1m"}, routetest.Refused(d))
					}
					assert.False(t, d.Allowed)
					assert.Equal(t, test.retryAfter, w.Header().Get("Retry-After"), "set before the function is called")
					answer(w)
				},
				Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
					assert.ErrorIs(t, err, limit.ErrUndecided)
					assert.ErrorIs(t, err, errBroken)
					replaced = "undecided"
					answer(w)
				},
			}), counting(&ran), limit.Rules(limit.Global(time.Minute, 1))))

			c.send("GET", "/", "X-Bar", "a while") // the first of two is admitted, if any is
			a := c.send("GET", "/", "X-Bar", "a while")
			assert.Equal(t, test.name, replaced)
			assert.Equal(t, test.admitted, ran)
			assert.Equal(t, cmp.Or(set.status, test.status), a.StatusCode, test.name)
			assert.Equal(t, set.body, a.body, test.name)
			assert.Equal(t, "text/plain", a.Header.Get("Content-Type"), test.name)
			assert.Equal(t, test.retryAfter, a.Header.Get("Retry-After"), test.name)
		}
	}
}

// failingStore is a store that fails with an error.
type failingStore struct {
	core.Store
	err error
}

func (f failingStore) Take(context.Context, []core.Ask) error {
	return f.err
}

// failing returns a limiter whose store answers no call.
func failing(o limit.Options) *limit.Limiter { return limit.New(failingStore{err: errBroken}, &o) }

var errBroken = errors.New("the disk is full")

// undecided are flows on stores that fail.
func undecided() []flow {
	rule := func(on core.OnError) limit.RuleSet {
		return limit.Rules(limit.Rule{Key: limit.ByIP, Limit: 2, Window: time.Hour, OnStoreError: on})
	}
	// Clients do not learn why.
	refused := func(request, detail string) step {
		return send(request, 503).with(reducedCapacity("The rate limiter is unavailable", detail))
	}
	round := func(local int) []step {
		return []step{send("GET /local", local), send("GET /allow", 204),
			refused("GET /refuse", "Try again in 1 s.").says("Retry-After", "1")}
	}
	modes := []string{"mode=local", "mode=allowed", "mode=refused"}
	return []flow{
		{name: "store fails", store: failingStore{err: errBroken}, options: limit.Options{
			Headers: limit.Draft11 | limit.XRateLimit,
			Refuse: func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) { // which it is not
				w.WriteHeader(http.StatusTeapot)
			},
		}, declare: on("GET /", limit.Rules(limit.PerIP(time.Minute, 5))), steps: []step{
			refused("GET /", "").says("Retry-After", "1", "RateLimit", "", "X-RateLimit-Limit", ""),
		}, seen: []string{"allowed=false"}, failures: []string{errBroken.Error()}},
		// What each choice in Rule.OnStoreError means to clients while the store is unavailable.
		{name: "store unavailable", store: failingStore{err: fmt.Errorf("dial tcp: i/o timeout: %w", core.ErrUnavailable)},
			declare: func(r Router, h http.Handler) {
				r.Handle("GET", "/local", h, rule(limit.Local))
				r.Handle("GET", "/allow", h, rule(limit.Allow))
				r.Handle("GET", "/refuse", h, rule(limit.Refuse))
			}, steps: slices.Concat(round(204), round(204), round(429)), seen: slices.Repeat(modes, 3)},
	}
}
