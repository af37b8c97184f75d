package proof

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// TestBadRules has what a program may declare wrong: each is an error that
// says what to write instead, and nothing is unlimited by it.
func TestBadRules(t *testing.T) {
	long := make([]limit.Rule, 17)
	for i := range long {
		long[i] = limit.Rule{Name: fmt.Sprint("r", i), Key: limit.ByIP, Limit: 5, Window: time.Second}
	}
	ip := func(r limit.Rule) limit.RuleSet { r.Key = limit.ByIP; return limit.Rules(r) }
	for name, row := range map[string]struct {
		rules limit.RuleSet
		want  string // what the error says to write, or what is wrong
	}{
		"no limit":              {limit.Rules(limit.PerIP(time.Second, 0)), "at least 1"},
		"limit below 0":         {limit.Rules(limit.PerIP(time.Second, -5)), "at least 1"},
		"smallest limit":        {limit.Rules(limit.PerIP(time.Second, math.MinInt64)), "at least 1"},
		"limit beyond a log":    {limit.Rules(limit.PerIP(time.Second, 100_001)), "sliding-cells"},
		"largest limit":         {ip(limit.Rule{Limit: math.MaxInt64, Window: time.Second, Algorithm: limit.FixedWindow}), "at most"},
		"no window":             {limit.Rules(limit.PerIP(0, 5)), "1ms"},
		"window below 0":        {limit.Rules(limit.PerIP(-time.Second, 5)), "1ms"},
		"window of 1 ns":        {limit.Rules(limit.PerIP(1, 5)), "1ms"},
		"largest window":        {limit.Rules(limit.PerIP(math.MaxInt64, 5)), "366 days"},
		"no rules":              {limit.Rules(), "rule"},
		"zero set":              {limit.RuleSet{}, "rule"},
		"duplicate rules":       {limit.Rules(limit.PerIP(time.Second, 5), limit.PerIP(time.Second, 5)), "per-ip-1s"},
		"17 rules":              {limit.Rules(long...), "16"},
		"rule without key":      {limit.Rules(limit.Rule{Limit: 5, Window: time.Second}), "key"},
		"zero rule":             {limit.Rules(limit.Rule{}), "key"},
		"user without function": {limit.Rules(limit.PerUser(time.Second, 5)), "limit.Options.User"},
		"burst of another":      {ip(limit.Rule{Limit: 5, Window: time.Second, Burst: 3}), "leave it out"},
		"burst below 0":         {ip(limit.Rule{Limit: 5, Window: time.Second, Algorithm: limit.TokenBucket, Burst: -1}), "burst"},
		"one cell":              {ip(limit.Rule{Limit: 5, Window: time.Second, Algorithm: limit.SlidingCells, Cells: 1}), "2 to 60"},
		"unknown algorithm":     {ip(limit.Rule{Limit: 5, Window: time.Second, Algorithm: 99}), "algorithm"},
		"name of a header line": {ip(limit.Rule{Name: "a\r\nSet-Cookie: x", Limit: 5, Window: time.Second}), "name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := limit.New(nil, nil).Policy(row.rules)
			require.Error(t, err)
			assert.Contains(t, strings.ToLower(err.Error()), strings.ToLower(row.want))
		})
	}
	for _, text := range []string{"", "5", "5/", "5/0s", "0/1s", "-5/1s", "5 per", "1e9/s", "٥/s per ip", "5/2s ip", "5/2s per",
		"5/2s per ip;;", "5/2s per ip; 5/2s per ip", "5/2s per header", "5/2s per header X: Y", "5/2s per ip bursts 3",
		"5/99999999999999999999s per ip", "5.5/2s per ip", "5/2s per ip\x00", "5/2s per ip algorithm"} {
		t.Run("text "+text, func(t *testing.T) {
			rules, err := limit.Parse(text)
			if err == nil {
				_, err = limit.New(nil, nil).Policy(rules)
			}
			assert.Error(t, err)
		})
	}
}

// TestBadCosts has what a program may answer when asked for a cost: nothing is
// admitted by it, and nothing given back.
func TestBadCosts(t *testing.T) {
	for name, row := range map[string]struct {
		cost   func(*http.Request) int64
		status int
	}{
		"below 0":     {func(*http.Request) int64 { return -1 }, http.StatusServiceUnavailable},
		"smallest":    {func(*http.Request) int64 { return math.MinInt64 }, http.StatusServiceUnavailable},
		"above limit": {func(*http.Request) int64 { return 6 }, http.StatusTooManyRequests},
		"largest":     {func(*http.Request) int64 { return math.MaxInt64 }, http.StatusTooManyRequests},
	} {
		for framework, serve := range frameworks {
			t.Run(name+"/"+framework, func(t *testing.T) {
				ran := 0
				limiter := limit.New(nil, nil)
				costly := limit.Rule{Name: "costly", Key: limit.ByIP, Limit: 5, Window: time.Hour, Cost: row.cost}
				handler := serve(limiter, limit.Rules(costly, limit.Global(time.Hour, 1)), func() { ran++ })
				for range 3 {
					answer := do(handler, "192.0.2.1:1", "/login")
					assert.Equal(t, row.status, answer.Code)
					if row.status == http.StatusTooManyRequests {
						assert.Empty(t, answer.Header().Get("Retry-After"), "it never fits")
					}
				}
				assert.Zero(t, ran)
			})
		}
	}
}

func do(handler http.Handler, peer, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://example.com/login", nil)
	r.RemoteAddr = peer
	r.URL.Path = path
	for i := 0; i < len(headers); i += 2 { // not canonical, and not checked
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// TestIdentities sends requests with all that clients write into headers. A
// rule of one request per client tells how many clients they are taken for.
func TestIdentities(t *testing.T) {
	const client = "203.0.113.9:4711"
	const xff, real, forwarded = "X-Forwarded-For", "X-Real-Ip", "Forwarded"
	trusting := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	hop := limit.Proxies{Hops: 1}
	type request struct {
		peer    string
		headers []string
	}
	direct := func(headers ...string) request { return request{client, headers} }
	proxied := func(headers ...string) request { return request{"10.0.0.1:80", headers} }
	numbered := func(n int, one func(i int) request) (all []request) {
		for i := range n {
			all = append(all, one(i))
		}
		return all
	}
	key := func(values ...string) (all []request) {
		for _, v := range values {
			all = append(all, direct("X-Api-Key", v))
		}
		return all
	}
	for name, row := range map[string]struct {
		proxies  limit.Proxies
		key      limit.KeyResolver
		requests []request
		clients  int
	}{
		"every header of proxies, forged": {requests: []request{direct(), direct(xff, "1.1.1.1"), direct(real, "1.1.1.1"), direct(real, "10.1.2.3"),
			direct(forwarded, "for=1.1.1.1"), direct("Client-Ip", "1.1.1.1"), direct("True-Client-Ip", "1.1.1.1"), direct("Cf-Connecting-Ip", "1.1.1.1"),
			direct("X-Client-Ip", "1.1.1.1"), direct("X-Cluster-Client-Ip", "1.1.1.1"), direct("Fastly-Client-Ip", "1.1.1.1"),
			direct("X-Original-Forwarded-For", "1.1.1.1"), direct("Via", "1.1.1.1"), direct("x-forwarded-for", "1.1.1.1"), direct("X_Forwarded_For", "1.1.1.1"),
			direct("Connection", "X-Forwarded-For", xff, "1.1.1.1"), direct(xff, strings.Repeat("g", 8000))}, clients: 1},
		"5,000 forged addresses": {requests: numbered(5000, func(i int) request {
			address := fmt.Sprintf("1.2.%d.%d", i/250, i%250)
			return direct(xff, address, real, address, forwarded, "for="+address)
		}), clients: 1},
		"a forger behind a trusted proxy": {proxies: trusting, requests: numbered(50, func(i int) request {
			return proxied(xff, fmt.Sprintf("1.1.1.%d, 198.51.100.7", i))
		}), clients: 1},
		"a forger in a line of its own": {proxies: trusting, requests: numbered(50, func(i int) request {
			return proxied(xff, fmt.Sprintf("1.1.1.%d", i), xff, "198.51.100.7")
		}), clients: 1},
		"a forger that names proxies": {proxies: trusting, requests: numbered(50, func(i int) request {
			return proxied(xff, fmt.Sprintf("1.1.1.%d, 10.0.0.7, 198.51.100.7, 10.0.0.2", i))
		}), clients: 1},
		"a forger who is not a proxy": {proxies: trusting, requests: numbered(50, func(i int) request {
			return direct(xff, fmt.Sprintf("1.1.1.%d, 10.0.0.7", i))
		}), clients: 1},
		"clients of a trusted proxy": {proxies: trusting, requests: []request{proxied(xff, "198.51.100.7"), proxied(xff, "198.51.100.8")}, clients: 2},
		"hops, and a forger to their left": {proxies: hop, requests: numbered(50, func(i int) request {
			return proxied(xff, fmt.Sprintf("1.1.1.%d, 198.51.100.7", i))
		}), clients: 1},
		"what is no address": {proxies: trusting, requests: func() (all []request) {
			for _, text := range []string{"unknown", "_hidden", "", ",", ", ,", "01.2.3.4", "0x7f.1", "1.2.3", "2130706433", "\t", "\x00", "1.2.3.4\x00",
				"1.1.1.1\r\nX: y", "[::1", "::1]", "for=1.1.1.1", "1.1.1.1 1.1.1.2", strings.Repeat("1", 1<<20), "\xff\xfe", "１.１.１.１"} {
				all = append(all, proxied(xff, text))
			}
			return all
		}(), clients: 1},
		"10,000 entries": {proxies: trusting, requests: numbered(5, func(i int) request {
			return proxied(xff, strings.Repeat(fmt.Sprintf("1.1.1.%d, ", i), 10_000)+"198.51.100.7")
		}), clients: 1},
		"ports": {proxies: trusting, requests: []request{proxied(xff, "198.51.100.7"), proxied(xff, "198.51.100.7:80"), proxied(xff, " 198.51.100.7 ")}, clients: 1},
		"spellings of an IPv4 address": {proxies: trusting, requests: []request{proxied(xff, "198.51.100.7"), proxied(xff, "::ffff:198.51.100.7"),
			proxied(xff, "::ffff:c633:6407"), proxied(xff, "[::ffff:198.51.100.7]:1"), proxied(xff, "0:0:0:0:0:ffff:198.51.100.7"),
			proxied(xff, "64:ff9b::198.51.100.7")}, clients: 1},
		"spellings of an IPv6 address": {proxies: trusting, requests: []request{proxied(xff, "2001:db8::1"), proxied(xff, "2001:DB8::1"),
			proxied(xff, "2001:0db8:0000:0000:0000:0000:0000:0001"), proxied(xff, "[2001:db8::1]"), proxied(xff, "[2001:db8::1]:443"),
			proxied(xff, "2001:db8::0:1"), proxied(xff, "2001:db8::0.0.0.1"), proxied(xff, "2001:db8::1%eth0")}, clients: 1},
		"a network of IPv6": {proxies: trusting, requests: numbered(65_536/64, func(i int) request {
			return proxied(xff, fmt.Sprintf("2001:db8:1234:5678::%x", i*64))
		}), clients: 1},
		"networks of IPv6":          {proxies: trusting, requests: []request{proxied(xff, "2001:db8:0:1::1"), proxied(xff, "2001:db8:0:2::1")}, clients: 2},
		"a /48 that rotates, at 48": {proxies: limit.Proxies{Trusted: trusting.Trusted, IPv6Prefix: 48}, requests: numbered(500, func(i int) request { return proxied(xff, fmt.Sprintf("2001:db8:7:%x::1", i)) }), clients: 1},
		"not mapped":                {proxies: trusting, requests: []request{proxied(xff, "2001:db8:1234:5678::1.2.3.4"), proxied(xff, "1.2.3.4")}, clients: 2},
		"translated networks do not share": {proxies: trusting, requests: []request{proxied(xff, "64:ff9b::198.51.100.7"),
			proxied(xff, "64:ff9b::198.51.100.8")}, clients: 2},
		"peers without an address": {requests: []request{{"", nil}, {"@", nil}, {"pipe", nil}, {"@", []string{xff, "1.1.1.1"}}}, clients: 1},
		"Forwarded, quoted": {proxies: limit.Proxies{Trusted: trusting.Trusted, Header: "Forwarded"}, requests: []request{
			proxied(forwarded, `for="[2001:db8::1]:80";by=10.0.0.1`), proxied(forwarded, `By="a,b;for=1.1.1.1";For="[2001:db8::1]"`),
			proxied(forwarded, `for=1.1.1.1, for="[2001:db8::1]"`), proxied(forwarded, `for=1.1.1.1`, forwarded, `for="[2001:db8::2]"`)}, clients: 1},

		"keys that are no text":      {key: limit.ByHeader("X-API-Key"), requests: key("\xff", "\xc0\x80", "\x00", "\u202e", "{}", "}", "a\r\nb", "\x1b[2J"), clients: 8},
		"one huge key":               {key: limit.ByHeader("X-API-Key"), requests: key(strings.Repeat("k", 1<<20), strings.Repeat("k", 1<<20)), clients: 1},
		"two huge keys":              {key: limit.ByHeader("X-API-Key"), requests: key(strings.Repeat("k", 1<<20)+"1", strings.Repeat("k", 1<<20)+"2"), clients: 2},
		"no key, of any kind":        {key: limit.ByHeader("X-API-Key"), requests: append(key("", " ", "\t "), direct()), clients: 1},
		"a key repeated":             {key: limit.ByHeader("X-API-Key"), requests: numbered(100, func(i int) request { return direct("X-Api-Key", "k", "X-Api-Key", fmt.Sprint(i)) }), clients: 1},
		"joined keys do not collide": {key: limit.Joined(limit.ByHeader("A"), limit.ByHeader("B")), requests: []request{direct("A", "a", "B", "b_c"), direct("A", "a_b", "B", "c"), direct("A", "a b", "B", ""), direct("A", "a", "B", " b")}, clients: 4},
		"first keys do not collide":  {key: limit.FirstOf(limit.ByHeader("A"), limit.ByHeader("B")), requests: []request{direct("A", "x"), direct("B", "x")}, clients: 2},
	} {
		for framework, serve := range frameworks {
			t.Run(name+"/"+framework, func(t *testing.T) {
				resolver := row.key
				if resolver.String() == "" {
					resolver = limit.ByIP
				}
				ran := 0
				handler := serve(limit.New(nil, &limit.Options{Proxies: row.proxies}),
					limit.Rules(limit.Per(resolver, time.Hour, 1)), func() { ran++ })
				for _, r := range row.requests {
					answer := do(handler, r.peer, "/login", r.headers...)
					assert.Contains(t, []int{http.StatusOK, http.StatusTooManyRequests}, answer.Code)
					for _, values := range answer.Header() {
						for _, v := range values {
							assert.False(t, strings.ContainsAny(v, "\r\n\x00\x1b"), "%q", v)
						}
					}
				}
				assert.Equal(t, row.clients, ran)
			})
		}
	}
}

// TestPaths asks for a route in all ways that reach its handler. What does not
// reach it may be answered by whoever; what does is counted.
func TestPaths(t *testing.T) {
	for framework, serve := range frameworks {
		t.Run(framework, func(t *testing.T) {
			ran := 0
			handler := serve(limit.New(nil, nil), limit.Rules(limit.PerIP(time.Hour, 1)), func() { ran++ })
			for _, path := range []string{"/login", "/login/", "//login", "/LOGIN", "/./login", "/x/../login", "/login;x", "/login%00", "/lo%67in",
				"/login\x00", "/%6cogin", "/login?", "/login#", "/login ", strings.Repeat("/", 10_000) + "login", "/\xff"} {
				do(handler, "192.0.2.1:1", path)
			}
			for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "post", "POST ", "BREW", ""} {
				r := httptest.NewRequest(http.MethodPost, "/login", bytes.NewReader(nil))
				r.Method = method
				r.Header.Set("X-HTTP-Method-Override", "POST")
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			assert.Equal(t, 1, ran)
		})
	}
}

// TestBadCalls has what a program may call wrong outside HTTP.
func TestBadCalls(t *testing.T) {
	limiter := limit.New(nil, nil)
	rules := limit.Named("jobs", limit.PerIP(time.Hour, 5))
	keys := limit.Keys{"ip": "192.0.2.1"}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() (limit.Decision, error){
		"no name": func() (limit.Decision, error) {
			return limiter.Take(t.Context(), limit.Rules(limit.PerIP(time.Hour, 5)), keys)
		},
		"no keys":            func() (limit.Decision, error) { return limiter.Take(t.Context(), rules, nil) },
		"another key":        func() (limit.Decision, error) { return limiter.Take(t.Context(), rules, limit.Keys{"user": "a"}) },
		"cost below 0":       func() (limit.Decision, error) { return limiter.TakeN(t.Context(), rules, keys, -1) },
		"smallest cost":      func() (limit.Decision, error) { return limiter.TakeN(t.Context(), rules, keys, math.MinInt64) },
		"context that ended": func() (limit.Decision, error) { return limiter.Take(ended, rules, keys) },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := call()
			assert.Error(t, err)
			assert.False(t, d.Allowed)
		})
	}
	d, err := limiter.Peek(t.Context(), rules, keys)
	require.NoError(t, err)
	assert.EqualValues(t, 5, d.Rules()[0].Remaining, "nothing of it was charged")
}
