package livepage

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

// TestRefusals checks the words of refusals.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limit.New(nil, &limit.Options{Log: quiet, Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.URL.Query().Get("user") }},
			Bar: func(c limit.Client) time.Duration {
				if c.User() == "mallory" {
					return 90 * time.Second
				}
				return 0
			}})
		p := Handler(limiter, nil).(*page)
		mux := http.NewServeMux()
		for path, rules := range map[string][]limit.Rule{
			"POST /login":   {limit.PerUser(time.Minute, 2), limit.PerUser(time.Hour, 2)},
			"/any":          {{Key: limit.Everyone, Limit: 1, Window: 90 * time.Second}},
			"GET /values":   limit.MustParse("1/1h per user distinct query v").Rules(),
			"GET /barring":  {{Key: limit.ByUser, Limit: 1, Window: time.Hour, Algorithm: limit.Ban{Bar: time.Minute}}, limit.PerUser(time.Second, 1)},
			"GET /shadowed": {{Name: "s", Key: limit.ByUser, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{}}, {Name: "e", Key: limit.ByUser, Limit: 1, Window: time.Minute}},
		} {
			mux.Handle(path, limiter.Limit(limit.Rules(rules...))(http.NotFoundHandler()))
		}
		words := func(method, target string) refusalRow {
			t.Helper()
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target+"2", nil))
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			time.Sleep(time.Second)
			s, _ := viewOf(t, p, "")
			require.NotEmpty(t, s.Refusals)
			return s.Refusals[0]
		}
		row := words("POST", "/login?user=ann")
		assert.Equal(t, "per-user-1m allows 2 in 1m for ann, and has room again in 1m. per-user-1h allows 2 in 1h for ann, and has room again in 1h.", row.Words)
		assert.Equal(t, []refusedKey{{Name: "per-user-1m", Key: "ann"}, {Name: "per-user-1h", Key: "ann"}}, row.Rules)
		row = words(strings.Repeat("LONG", 1000), "/any?user=ann")
		assert.Equal(t, "global-1m30s allows 1 in 1m30s, and has room again in 1m30s.", row.Words)
		row = words("GET", "/shadowed?user=ann")
		assert.Equal(t, "e allows 1 in 1m for ann, and has room again in 1m.", row.Words)
		row = words("GET", "/login?user=mallory")
		assert.NotEqual(t, "barred", row.Mode, "no route has this method")
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login?user=mallory", nil))
		time.Sleep(time.Second)
		s, _ := viewOf(t, p, "")
		assert.Equal(t, "The client 192.0.2.1 is banned for another 1m30s.", s.Refusals[0].Words)
		assert.Equal(t, "barred", s.Refusals[0].Mode)
		row = words("GET", "/barring?user=ann")
		assert.Contains(t, row.Words, "per-user-ban bans ann for another 1m.")
	})
}

// TestInWords checks durations in words.
func TestInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Microsecond: "1ms", 999 * time.Millisecond: "999ms", time.Second: "1s", 1001 * time.Millisecond: "2s",
		59*time.Second + 1: "1m", 65 * time.Second: "1m5s", time.Hour - 1: "1h", time.Hour + time.Second: "1h1m",
		24*time.Hour - 1: "1d", 49 * time.Hour: "2d1h", 365 * 24 * time.Hour: "365d",
	} {
		assert.Equal(t, want, inWords(d), d.String())
	}
}

// TestBannedClient checks that a refusal by a ban names the address of the client, or its
// id if keys are hidden.
func TestBannedClient(t *testing.T) {
	banned := func(hide bool) refusalRow {
		t.Helper()
		proxies := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		limiter := limit.New(nil, &limit.Options{Log: quiet, Proxies: proxies, Bar: func(limit.Client) time.Duration { return limit.Never }})
		p := Handler(limiter, &Options{HideKeys: hide}).(*page)
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.1.2.3:4711"
		r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9")
		limiter.Limit(limit.Rules(limit.PerIP(time.Second, 1)))(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		s, _ := viewOf(t, p, "")
		require.Len(t, s.Refusals, 1)
		d := limit.Decision{Mode: core.ModeBarred}
		p.collector.observe(r, d, nil)
		p.collector.observe(nil, d, nil) // of a policy without a request
		return s.Refusals[0]
	}
	assert.Equal(t, "The client 203.0.113.9 is banned for good.", banned(false).Words)
	assert.Regexp(t, "^The client [A-Z2-7]{12} is banned for good.$", banned(true).Words)
}
