package proof

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestOutcomes has refused requests meet each outcome, alone and stacked with others, on
// a real Redis and through a server and a client of each framework. A rule of five units
// shows that only admitted requests are charged.
func TestOutcomes(t *testing.T) {
	client := redistest.Client(t)
	const (
		first = "204 left 4"
		wait  = "refuse wait 5s"
	)
	for i, row := range []struct {
		rules  string // of a, b and c; another rule has room for five requests
		second string // what the second request meets; the first one is admitted
		third  string // and the next one; "" if that is the same
	}{
		{"a: 1/1h global", "429 left 4 retry", ""},
		{"a: 1/1h global refuse 503", "503 left 4 retry", ""},
		{"a: 1/1h global refuse redirect /busy", "303 left 4 retry to /busy", ""},
		{"a: 1/1h global refuse redirect https://example.com/ 307", "307 left 4 retry to https://example.com/", ""},
		{"a: 1/1h global refuse degrade", "206 left 4", ""},
		{"a: 1/1h global refuse mark", "204 left 3 marked a", "204 left 2 marked a"},
		{"a: 1/500ms global " + wait, "204 left 3 waited", "204 left 2 waited"},
		{"a: 1/1h global refuse wait 1s", "429 left 4 retry", ""},
		{"a: 1/1h global ban 1h; b: 1/1h global", "429 left 4 retry", ""},
		{"a: 1/1h global shadow", "204 left 3", "204 left 2"},

		{"a: 1/1h global refuse degrade; b: 1/1h global refuse redirect /busy", "303 left 4 retry to /busy", ""},
		{"a: 1/1h global refuse redirect /busy; b: 1/1h global refuse 503", "503 left 4 retry", ""},
		{"a: 1/1h global refuse degrade; b: 1/1h global", "429 left 4 retry", ""},
		{"a: 1/1h global refuse mark; b: 1/1h global refuse degrade", "206 left 4", ""},
		{"a: 1/1h global refuse mark; b: 2/1h global refuse redirect /busy", "204 left 3 marked a", "303 left 3 retry to /busy"},
		{"a: 1/1h global refuse mark; b: 1/1h global refuse mark", "204 left 3 marked a, b", "204 left 2 marked a, b"},
		{"a: 1/1h global refuse mark; b: 1/500ms global " + wait, "204 left 3 marked a waited", "204 left 2 marked a waited"},
		{"a: 1/1h global shadow; b: 1/500ms global " + wait, "204 left 3 waited", "204 left 2 waited"},
		{"a: 1/400ms global " + wait + "; b: 1/500ms global " + wait, "204 left 3 waited", "204 left 2 waited"},
		{"a: 1/500ms global " + wait + "; b: 1/1h global", "429 left 4 retry", ""},
		{"a: 1/500ms global " + wait + "; b: 2/1h global refuse degrade", "204 left 3 waited", "429 left 3 retry"},
		{"a: 1/1h global " + wait + " refuse degrade; b: 1/1h global " + wait + " refuse redirect /busy", "303 left 4 retry to /busy", ""},
		{"a: 1/1h global queue wait 1s refuse redirect /busy; b: 1/1h global shadow", "303 left 4 retry to /busy", ""},
		{"a: 1/1h global refuse degrade; b: 2/1h global ban 1h", "206 left 4", "429 left 4 retry"},
	} {
		for name, serve := range frameworks {
			t.Run(fmt.Sprintf("%d %s", i, name), func(t *testing.T) {
				t.Parallel()
				store := redisstore.New(client, &redisstore.Options{Prefix: fmt.Sprint("outcomes", i, name)})
				var waited atomic.Int64
				l := limit.New(store, &limit.Options{
					Log: slog.New(slog.DiscardHandler),
					Observe: func(_ *http.Request, d limit.Decision, err error) {
						assert.NoError(t, err)
						waited.Store(int64(d.Waited))
					},
				})
				server := httptest.NewServer(serve(l, "GET /item", func(w http.ResponseWriter, r *http.Request) {
					if limit.DecisionFrom(r.Context()).Outcome() == "degraded" {
						w.WriteHeader(http.StatusPartialContent)
						return
					}
					assert.Equal(t, strings.Join(routetest.Marked(limit.DecisionFrom(r.Context())), ", "), w.Header().Get("RateLimit-Marked"))
					w.WriteHeader(http.StatusNoContent)
				}, limit.MustParse(row.rules+"; room: 5/1h global")))
				defer server.Close()
				server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				for i, want := range []string{first, row.second, row.third} {
					if want == "" {
						want = row.second
					}
					got := met(t, server)
					if waited.Load() > 0 {
						got += " waited"
					}
					assert.Equal(t, want, got, "%s: request %d", row.rules, i+1)
				}
			})
		}
	}
}

// met sends a request, and returns what it met: the status, what the rule with room had
// left, and what else clients see.
func met(t *testing.T, server *httptest.Server) string {
	response := get(t, server, "/item")
	_, left, _ := strings.Cut(response.Header.Get("RateLimit"), `"room";r=`)
	left, _, _ = strings.Cut(left, ";")
	text := fmt.Sprint(response.StatusCode, " left ", left)
	if response.Header.Get("Retry-After") != "" {
		text += " retry"
		assert.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	}
	if to := response.Header.Get("Location"); to != "" {
		text += " to " + to
	}
	if marked := response.Header.Get("RateLimit-Marked"); marked != "" {
		text += " marked " + marked
	}
	return text
}
