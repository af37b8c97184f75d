package replay

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/patterns"
	"github.com/routelimit/limit/internal/race"
)

// TestSuggest checks suggestions by hand: 9 clients send 2 requests in a second, and one
// sends 20.
func TestSuggest(t *testing.T) {
	var hits []hit
	for i := range 10 {
		n := 2
		if i == 9 {
			n = 20
		}
		for range n {
			hits = append(hits, hit{at: 0.5, ip: fmt.Sprint("10.0.0.", i), user: "everybody"})
		}
	}
	for share, limit := range map[float64]int{0.1: 2, 0: 20} {
		result := replayed(t, hits, &Options{Share: share, Again: again(hits)})
		require.Len(t, result.Suggestions, 4, "all routes, and the only one")
		assert.Empty(t, result.Suggestions[0].Route)
		assert.Equal(t, result.Suggestions[0].Windows, result.Suggestions[2].Windows)
		byIP, byUser := result.Suggestions[2], result.Suggestions[3]
		assert.Equal(t, Suggestion{Route: "GET /a", Key: "ip", Requests: 38, Busiest: 20, Clients: 10, Sampled: 1, Windows: byIP.Windows, Replayed: true}, byIP)
		require.Len(t, byIP.Windows, 4)
		for i, window := range []string{"1s", "10s", "1m", "1h"} {
			want := WindowSuggestion{Window: byIP.Windows[i].Window, P50: 2, P90: 2, P99: 20, Max: 20, Rule: fmt.Sprintf("%d/%s per ip", limit, window)}
			if limit == 2 {
				want.RefusedClients, want.RefusedRequests = 1, 18
			}
			assert.Equal(t, want, byIP.Windows[i])
		}
		assert.Equal(t, "38/1m per user", byUser.Windows[2].Rule)
		assert.EqualValues(t, 1, byUser.Clients)
	}
}

// again opens a log of hits.
func again(hits []hit) func() (Source, error) {
	return func() (Source, error) { return logOf(hits), nil }
}

// TestTryOut replays the suggested rules: each alone refuses exactly what its line says, and no
// more clients than may be refused.
func TestTryOut(t *testing.T) {
	race.Skip(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	var hits []hit
	now := 0.0
	for range 1500 {
		now += rnd.ExpFloat64() / 2
		hits = append(hits, hit{at: now, ip: fmt.Sprint("10.0.0.", int(rnd.ExpFloat64()*20)), user: fmt.Sprint("user", rnd.IntN(9)), request: []string{"GET /a", "GET /b/7/c/8", "GET /"}[rnd.IntN(3)]})
	}
	for _, share := range []float64{0.5, 0.2, 0.05, 0} {
		list := replayed(t, hits, &Options{Share: share, Again: again(hits)}).Suggestions
		require.Len(t, list, 8)
		for _, s := range list {
			assert.True(t, s.Replayed)
			for _, w := range s.Windows {
				assert.LessOrEqual(t, float64(w.RefusedClients), share*float64(s.Clients)+1e-9)
				var routes []string // all
				if s.Route != "" {
					routes = []string{s.Route}
				}
				got := replayed(t, hits, &Options{NoSuggestions: true, Policies: []Policy{{Routes: routes, Rules: limit.MustParse(w.Rule)}}})
				assert.Equal(t, got.Refused, w.RefusedRequests, "%s: %s", s.Route, w.Rule)
				if s.Key == "ip" {
					assert.Equal(t, got.RefusedClients, w.RefusedClients, "%s: %s", s.Route, w.Rule)
				}
			}
		}
	}
}

// TestSuggestedRoutes checks that all suggested routes fit into one policy file, and that
// requests which a server has redirected are left out.
func TestSuggestedRoutes(t *testing.T) {
	var hits []hit
	for i := range 60 {
		for _, request := range []string{"GET /", "GET /u/7/p/8", "GET /a/12345", "GET /12345/b", "GET /docs/", "HEAD /docs/"} {
			hits = append(hits, hit{at: float64(i), ip: "10.0.0.1", request: request})
		}
		for _, status := range []int{301, 302, 308} {
			hits = append(hits, hit{at: float64(i), ip: "10.0.0.1", request: "GET /docs", status: status})
		}
		hits = append(hits, hit{at: float64(i), ip: "10.0.0.1", request: "GET /missing", status: 404})
	}
	grown := append(slices.Clone(hits), hit{at: 59.5, ip: "10.0.0.1", request: "GET /docs"}) // while it was read
	result := replayed(t, hits, &Options{Again: again(grown)})
	assert.EqualValues(t, 120, result.Redirected)
	assert.Contains(t, result.Notes, "120 requests were answered with 301 or 308, which servers do before a limiter sees a request: the suggestions leave them out")
	requests := make(map[string]int64)
	mux := http.NewServeMux()
	for _, s := range result.Suggestions {
		requests[s.Route] = s.Requests
		if s.Route != "" {
			_, problem := patterns.Register(mux, s.Route, patterns.Of{})
			require.Empty(t, problem)
		}
		assert.Zero(t, s.Windows[2].RefusedRequests, "%s: %s", s.Route, s.Windows[2].Rule)
	}
	// Of two patterns that a mux does not take together, the first stays.
	assert.Equal(t, map[string]int64{"": 480, "GET /{$}": 60, "GET /u/{id}/p/{id2}": 60, "GET /a/{id}": 60, "GET /docs/{$}": 120, "GET /docs": 60}, requests)
	assert.Len(t, replayed(t, hits, &Options{Top: 2, Again: again(hits)}).Suggestions, 2)

	hits[0].user = "alice"
	result = replayed(t, hits, nil)
	assert.Len(t, result.Suggestions, len(requests), "one request has a user, and no rule is per user")
	assert.Contains(t, result.Notes, `479 requests have no user, and would share one quota: where there are some, no rule per user is suggested; try one such as --rules "100/1m per user or ip"`)
}

// TestAttackedRouteComesFirst has one client try logins, and many read pages.
func TestAttackedRouteComesFirst(t *testing.T) {
	var hits []hit
	for i := range 600 {
		hits = append(hits, hit{at: float64(i) / 10, ip: fmt.Sprint("10.0.0.", i%200), request: fmt.Sprint("GET /page", i%6)})
		if i%30 == 0 {
			hits = append(hits, hit{at: float64(i) / 10, ip: "203.0.113.9", request: "POST /login"})
		}
	}
	list := replayed(t, hits, nil).Suggestions
	require.Len(t, list, 8)
	assert.Equal(t, []any{"", int64(620), int64(20)}, []any{list[0].Route, list[0].Requests, list[0].Busiest})
	assert.Equal(t, []any{"POST /login", int64(20), int64(20)}, []any{list[1].Route, list[1].Requests, list[1].Busiest})
	assert.Equal(t, "GET /page0", list[2].Route)
}

// TestWholeSeconds checks that a log in whole seconds gets no suggestion for one second.
func TestWholeSeconds(t *testing.T) {
	var hits []hit
	for i := range 20 {
		hits = append(hits, hit{at: 55, ip: fmt.Sprint("10.0.0.", i)})
	}
	hits = append(hits, hit{at: 65, ip: "10.0.0.0"}) // within 11 cells of 1m, and in the next window of the clock
	windows := func() (list []time.Duration) {
		for _, w := range replayed(t, hits, nil).Suggestions[0].Windows {
			list = append(list, w.Window)
		}
		return list
	}
	assert.Equal(t, []time.Duration{10 * time.Second, time.Minute, time.Hour}, windows())
	hits = append(hits, hit{at: 70.001, ip: "10.0.0.1"})
	assert.Equal(t, []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour}, windows())
}
