package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
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
	result := replayed(t, hits, &Options{Shares: []float64{0.1, 0}})
	require.Len(t, result.Suggestions, 2)
	byIP, byUser := result.Suggestions[0], result.Suggestions[1]
	assert.Equal(t, Suggestion{Route: "GET /a", Key: "ip", Requests: 38, Busiest: 20, Clients: 10, Sampled: 1, Windows: byIP.Windows}, byIP)
	require.Len(t, byIP.Windows, 4)
	for i, window := range []string{"1s", "10s", "1m", "1h"} {
		w := byIP.Windows[i]
		assert.Equal(t, []int64{2, 2, 20, 20}, []int64{w.P50, w.P90, w.P99, w.Max})
		assert.Equal(t, []Choice{
			{Share: 0.1, Limit: 2, RefusedClients: 1, RefusedRequests: 18, Rule: "2/" + window + " per ip"},
			{Share: 0, Limit: 20, Rule: "20/" + window + " per ip"},
		}, w.Choices)
	}
	assert.Equal(t, "38/1m per user", byUser.Windows[2].Choices[1].Rule)
	assert.EqualValues(t, 1, byUser.Clients)
}

// TestChoices replays the suggested limits: they refuse as many clients as they say, and
// a sliding log refuses no more.
func TestChoices(t *testing.T) {
	race.Skip(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	var hits []hit
	now := 0.0
	for range 5000 {
		now += rnd.ExpFloat64() / 2
		hits = append(hits, hit{at: now, ip: fmt.Sprint("10.0.0.", int(rnd.ExpFloat64()*20)), request: []string{"GET /a", "GET /b"}[rnd.IntN(2)]})
	}
	result := replayed(t, hits, &Options{Shares: []float64{0.5, 0.2, 0.05, 0}})
	for _, s := range result.Suggestions {
		for _, w := range s.Windows {
			for _, c := range w.Choices {
				assert.LessOrEqual(t, float64(c.RefusedClients), c.Share*float64(s.Clients)+1e-9)
				for _, algorithm := range []string{" sliding-cells", ""} {
					rules, err := limit.Parse(c.Rule + algorithm)
					require.NoError(t, err)
					var routes []string // all
					if s.Route != "" {
						routes = []string{s.Route}
					}
					got := replayed(t, hits, &Options{NoSuggestions: true, Policies: []Policy{{Routes: routes, Rules: rules}}})
					if algorithm == "" {
						assert.LessOrEqual(t, got.RefusedClients, c.RefusedClients, c.Rule)
					} else {
						assert.Equal(t, c.RefusedClients, got.RefusedClients, c.Rule)
					}
					if c.Limit > 1 && w.Window == time.Hour && c.RefusedRequests > 50 {
						assert.InEpsilon(t, c.RefusedRequests, got.Refused, 0.3, c.Rule)
					}
				}
			}
		}
	}
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

// TestWholeSeconds checks that a log in whole seconds gets no suggestion for one second,
// and that a refused client has at least one refused request.
func TestWholeSeconds(t *testing.T) {
	var hits []hit
	for i := range 20 {
		hits = append(hits, hit{at: 55, ip: fmt.Sprint("10.0.0.", i)})
	}
	hits = append(hits, hit{at: 65, ip: "10.0.0.0"}) // within 11 cells of 1m, and in the next window of the clock
	windows := func() (list []time.Duration) {
		for _, w := range replayed(t, hits, nil).Suggestions[0].Windows {
			list = append(list, w.Window)
			for _, c := range w.Choices {
				assert.GreaterOrEqual(t, c.RefusedRequests, c.RefusedClients, "%v", c)
			}
		}
		return list
	}
	assert.Equal(t, []time.Duration{10 * time.Second, time.Minute, time.Hour}, windows())
	hits = append(hits, hit{at: 70.001, ip: "10.0.0.1"})
	assert.Equal(t, []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour}, windows())
}
