//go:build !race

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
)

// TestAllocations fails if a request costs more allocations than it did: those of the
// headers, and the layer of an admitted request (docs/design/decisions.md). The race
// detector empties pools at random, so scripts/test.sh runs it without.
func TestAllocations(t *testing.T) {
	policy, err := limit.New(nil, nil).Policy(limit.Named("all", limit.PerIP(time.Hour, 1), limit.Global(time.Millisecond, 20_000)))
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		most float64
		call func()
	}{
		{"Take, refused", 0, func() {
			_, _ = policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}})
		}},
		{"net/http", 1, request(netHTTP(twoRules))},
		{"net/http, two rules with one of another set", 2, request(netHTTP(limit.Rules(twoRules.Rules()...).With(
			limit.Named("app", limit.Global(time.Millisecond, 20_000)))))},
		{"net/http, refused", 1, request(netHTTP(refusing))},
		{"net/http, X-RateLimit", 1, request(muxWith(limit.New(nil, &limit.Options{Headers: limit.XRateLimit}).Limit(twoRules)))},
		{"net/http, two sets", 4, request(twoSets(limit.PerIP(time.Millisecond, 20_000)))},
		{"net/http, two sets, refused by the inner one", 9, request(twoSets(limit.PerIP(time.Hour, 1)))},
		{"Gin", 1, request(ginWith(ginlimit.New(limit.New(nil, nil)).Limit(twoRules)))},
		{"Gin, refused", 3, request(ginWith(ginlimit.New(limit.New(nil, nil)).Limit(refusing)))},
		{"Echo v4", 2, request(echoWith(echolimit.New(limit.New(nil, nil)).Limit(twoRules)))},
		{"Echo v4, refused", 6, request(echoWith(echolimit.New(limit.New(nil, nil)).Limit(refusing)))},
	} {
		for range 100 { // fill the pools
			c.call()
		}
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, c.call), c.most, c.name)
	}
}

// request returns a function that sends one request.
func request(h http.Handler) func() {
	r := requests(1)[0]
	w := make(adapter.HeaderWriter)
	return func() {
		clear(w)
		h.ServeHTTP(w, r)
	}
}
