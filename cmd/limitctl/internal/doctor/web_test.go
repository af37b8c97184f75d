package doctor

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
)

// serve serves /limited, /bare, /shared and /away, and records the requests.
func serve(t *testing.T, proxies limit.Proxies, set limit.RuleSet) (url string, requests func() []*http.Request) {
	t.Helper()
	limiter := limit.New(nil, &limit.Options{Proxies: proxies})
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok")) })
	mux := http.NewServeMux()
	mux.Handle("/limited", limiter.Limit(set)(ok))
	mux.Handle("/failures", limiter.Limit(limit.Rules(limit.Rule{Key: limit.ByIP, Limit: 5, Window: time.Hour, Settle: rules.OnStatus(401)}))(ok))
	mux.Handle("/bare", ok)
	mux.Handle("/shared", limiter.Limit(limit.Rules(limit.Global(time.Hour, 1000)))(ok))
	mux.Handle("/away", http.RedirectHandler("/limited", http.StatusFound))
	var mu sync.Mutex
	var all []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, r)
		mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func ask(t *testing.T, o WebOptions) map[string]Finding {
	t.Helper()
	facts := must.Get(Web(t.Context(), o))(t)
	found := make(map[string]Finding)
	for _, f := range Examine(Facts{Web: facts}) {
		found[f.Check] = f
	}
	return found
}

func TestWeb(t *testing.T) {
	believing := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	perIP, global := limit.PerIP(time.Hour, 100), limit.Global(time.Hour, 1000)
	for _, c := range []struct {
		name    string
		proxies limit.Proxies
		rules   limit.RuleSet
		verdict Verdict
	}{
		{"believes no header", limit.Proxies{}, limit.Rules(perIP, global), OK},
		{"believes this machine", believing, limit.Rules(perIP, global), Warn},
		{"believes this machine, one an hour", believing, limit.Rules(limit.PerIP(time.Hour, 1)), Warn},
		{"believes no header, one an hour", limit.Proxies{}, limit.Rules(limit.PerIP(time.Hour, 1)), OK},
		{"believes this machine, rule of another name", believing, limit.Rules(limit.Rule{Name: "login", Key: limit.ByIP, Limit: 9, Window: time.Hour}), Warn},
		{"believes no header, rule of another name", limit.Proxies{}, limit.Rules(limit.Rule{Name: "login", Key: limit.ByIP, Limit: 9, Window: time.Hour}), Skipped},
		{"no rule by address", believing, limit.Rules(global), Skipped},
		{"believes no header, one an hour of many", limit.Proxies{}, limit.Rules(limit.PerIP(time.Hour, 1), global), OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, requests := serve(t, c.proxies, c.rules)
			found := ask(t, WebOptions{URL: url, Routes: []string{"HEAD /limited?a=1"}})
			assert.Equal(t, c.verdict, found["proxies"].Verdict, found["proxies"].Found)
			assert.Equal(t, OK, found["routes"].Verdict)
			sent := requests()
			require.Len(t, sent, 3)
			for i, r := range sent {
				assert.Equal(t, "HEAD", r.Method)
				assert.Equal(t, "a=1", r.URL.RawQuery)
				for _, h := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded"} {
					assert.Equal(t, i == 2, r.Header.Get(h) != "", h)
				}
			}
		})
	}
}

// TestWebThroughProxy checks that an HTTP proxy on this machine, which leads to another one, excuses nothing.
func TestWebThroughProxy(t *testing.T) {
	via, _ := serve(t, limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, limit.Rules(limit.PerIP(time.Hour, 100)))
	transport := http.DefaultTransport.(*http.Transport)
	defer func(was func(*http.Request) (*url.URL, error)) { transport.Proxy = was }(transport.Proxy)
	transport.Proxy = http.ProxyURL(must.Get(url.Parse(via))(t))
	assert.Equal(t, Fail, ask(t, WebOptions{URL: "http://api.example.com/limited"})["proxies"].Verdict)
}

func TestWebRoutes(t *testing.T) {
	url, requests := serve(t, limit.Proxies{}, limit.Rules(limit.PerIP(time.Hour, 100)))
	found := ask(t, WebOptions{URL: url, Routes: []string{"/limited", "/bare", "/away", "/limited"}})
	assert.Equal(t, OK, found["proxies"].Verdict)
	assert.Equal(t, Warn, found["routes"].Verdict)
	assert.Contains(t, found["routes"].Found, `"/bare" (200), "/away" (302)`)
	assert.Len(t, requests(), 6, "three, and one to each other")

	for _, believing := range []bool{false, true} { // whose first route has no rule by address
		var proxies limit.Proxies
		verdict := OK
		if believing {
			proxies.Trusted, verdict = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, Warn
		}
		url, requests := serve(t, proxies, limit.Rules(limit.PerIP(time.Hour, 100)))
		found := ask(t, WebOptions{URL: url, Routes: []string{"/shared", "/bare", "/limited", "/limited"}})
		assert.Equal(t, verdict, found["proxies"].Verdict, found["proxies"].Found)
		assert.Len(t, requests(), 6)
		found = ask(t, WebOptions{URL: url, Routes: []string{"/bare", "/shared"}})
		assert.Equal(t, Skipped, found["proxies"].Verdict, found["proxies"].Found)
	}

	found = ask(t, WebOptions{URL: url, Routes: []string{"/failures", "/limited"}})
	assert.Equal(t, OK, found["proxies"].Verdict, found["proxies"].Found)
	assert.Len(t, requests(), 12, "a rule that counts only failures shows nothing")

	found = ask(t, WebOptions{URL: url + "/limited"})
	assert.Equal(t, OK, found["proxies"].Verdict)
	assert.NotContains(t, found, "routes")

	found = ask(t, WebOptions{URL: url + "/bare"})
	assert.Equal(t, Skipped, found["proxies"].Verdict)
	assert.Len(t, requests(), 16, "without headers one is enough")
}

func TestWebOptions(t *testing.T) {
	url, requests := serve(t, limit.Proxies{}, limit.Rules(limit.PerIP(time.Hour, 100)))
	for _, o := range []WebOptions{
		{URL: "127.0.0.1:8080"}, {URL: "ftp://a"}, {URL: ""},
		{URL: url, Routes: []string{"POST /limited"}},
		{URL: url, Routes: []string{"limited"}},
		{URL: url, Routes: []string{"//other.example/"}},
		{URL: url, Routes: make([]string, MaxRoutes+1)},
	} {
		_, err := Web(t.Context(), o)
		assert.Error(t, err, "%v", o)
	}
	assert.Empty(t, requests())

	found := ask(t, WebOptions{URL: "http://127.0.0.1:1", Routes: []string{"/"}})
	assert.Equal(t, Fail, found["application"].Verdict)
	assert.Contains(t, found["application"].Found, "refused")
	assert.Equal(t, Skipped, found["proxies"].Verdict)
}

func TestRemaining(t *testing.T) {
	h := http.Header{}
	assert.Empty(t, remaining(h))
	h.Set("X-RateLimit-Remaining", "7")
	assert.Equal(t, map[string]int64{"X-RateLimit-Remaining": 7}, remaining(h))
	h.Add("RateLimit", `"per-ip-2s";r=4;t=2, "global-1m"; r=998`)
	h.Add("RateLimit", `"bad";r=x, junk, ;`)
	assert.Equal(t, map[string]int64{"per-ip-2s": 4, "global-1m": 998}, remaining(h))
}
