package policyfile_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/policyfile"
)

func always(text string) func(*http.Request) string {
	return func(*http.Request) string { return text }
}

func TestExplain(t *testing.T) {
	f := must.Get(policyfile.Read("testdata/valid/service.yaml"))(t)
	for _, test := range []struct{ method, path, ip, user, agent, want string }{
		{"POST", "/login", "203.0.113.7", "alice", "", `POST /login from 203.0.113.7, user alice
exempt: no entry matches
barred: no entry matches
policy login, by its route POST /login (testdata/valid/service.yaml:10:15)
  5/1m per ip (testdata/valid/service.yaml:11:13)
    key:     ip "203.0.113.7"
    limit:   5
    refused: waits up to 2s, and is then answered with 429
    outage:  local
  20/1h per user on-error refuse (testdata/valid/service.yaml:11:26)
    key:     user "alice"
    limit:   20
    refused: waits up to 2s, and is then answered with 429
    outage:  refuse
`},
		{"GET", "/items/7", "2001:db8::1", "", "", `GET /items/7 from 2001:db8::1, no user
exempt: no entry matches
barred: no entry matches
policy items, by its route GET /items/{id} (testdata/valid/service.yaml:14:15)
  one: 30/1m per ip and path id (testdata/valid/service.yaml:16:10)
    key:     ip and path id "13:2001:db8::/641:7"
    limit:   30
    refused: answered with 503
    outage:  local
  1000/1m global token-bucket burst 50 (testdata/valid/service.yaml:17:9)
    key:     all requests of the policy
    limit:   1000
    refused: answered with 503
    outage:  local
`},
		{"POST", "/login", "10.1.2.3", "", "", `POST /login from 10.1.2.3, no user
exempt by 10.0.0.0/8, in list office (testdata/valid/service.yaml:4:13): no rule is charged, whatever the policy
`},
		{"POST", "/login", "203.0.113.7", "root", "", `POST /login from 203.0.113.7, user root
exempt by user root, in list office (testdata/valid/service.yaml:4:27): no rule is charged, whatever the policy
`},
		{"POST", "/login", "192.0.2.1", "", "a badbot/1", `POST /login from 192.0.2.1, no user
exempt: no entry matches
barred by agent badbot, in list scanners (testdata/valid/service.yaml:5:31): answered with 403
`},
		{"POST", "/items/7", "192.0.2.1", "", "", `POST /items/7 from 192.0.2.1, no user
exempt: no entry matches
barred: no entry matches
policy: none of the routes of the file matches
  GET of the same path matches GET /items/{id}
  policy exports has no routes: the program may attach it by its name (testdata/valid/service.yaml:19:3)
`},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.RemoteAddr = net.JoinHostPort(test.ip, "80")
		r.Header.Set("User-Agent", test.agent)
		assert.Equal(t, test.want, f.Explain(r, &limit.Options{Caller: limit.Caller[*http.Request]{User: always(test.user)}}))
	}
}

// TestExplainAttempts names the rules that give nothing back, and only those.
func TestExplainAttempts(t *testing.T) {
	f := must.Get(policyfile.Parse("p.yaml", []byte("version: 1\npolicies: {a: {routes: [GET /], rules: 5/1m per ip attempts; 9/1m global}}\n")))(t)
	text := f.Explain(httptest.NewRequest("GET", "/", nil), nil)
	const inner = "    inner:   stays charged if an inner rule set refuses the request\n"
	assert.Contains(t, text, "  5/1m per ip attempts (p.yaml:2:40)\n    key:     ip \"192.0.2.1\"\n    limit:   5\n    refused: answered with 429\n    outage:  local\n"+inner)
	assert.Equal(t, 1, strings.Count(text, inner))
}

// TestExplainWaits explains a request that its rules refuse on an empty store, at once. A set with a
// ban does not wait, whatever the options say.
func TestExplainWaits(t *testing.T) {
	f := must.Get(policyfile.Parse("p.yaml", []byte(`version: 1
policies:
  slow: {routes: [GET /slow], rules: 1/1h per ip token-bucket empty refuse wait 1h}
  barred: {routes: [GET /barred], rules: 5/1m per ip; 9/1h per ip ban 15m}
`)))(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		assert.Contains(t, f.Explain(httptest.NewRequest("GET", "/slow", nil), nil), "    limit:   1\n    refused: waits up to 1h0m0s, and is then answered with 429\n")
		options := &limit.Options{OnRefusal: limit.Refusal{Wait: time.Second, Status: 503}}
		text := f.Explain(httptest.NewRequest("GET", "/barred", nil), options)
		assert.Equal(t, 2, strings.Count(text, "    refused: answered with 503\n"), text)
		assert.Zero(t, time.Since(began))
	})
}

// TestExplainCallers checks what the explanation says of plans, classes, overrides,
// exemptions of rules and proxies.
func TestExplainCallers(t *testing.T) {
	f := must.Get(policyfile.Read("testdata/valid/plans.yaml"))(t)
	override := func(policy, rule, key string) int64 {
		if policy == "api" && rule == "per-user-1h" && key == "carol" {
			return 500
		}
		return 0
	}
	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	const head = "exempt: no entry matches\nbarred: no entry matches\npolicy api, by its route /api/ (testdata/valid/plans.yaml:8:14)\n"
	const perUser, all, perIP = "  100/1h per user plan enterprise 10000 plan pro 1000 (testdata/valid/plans.yaml:10:9)\n",
		"  all: 500/1m global plan pro 1000 reserve critical 50 reserve default 20 (testdata/valid/plans.yaml:11:10)\n",
		"  20/1s per ip exempt ip 192.0.2.0/24 exempt user probe exempt plan enterprise exempt class critical (testdata/valid/plans.yaml:12:9)\n"
	const refused = "    refused: answered with 429\n    outage:  local\n"
	const ip = perIP + "    key:     ip \"203.0.113.7\"\n    limit:   20\n" + refused
	for _, test := range []struct {
		options limit.Options
		peer    string
		header  string
		want    string
	}{
		{limit.Options{Caller: limit.Caller[*http.Request]{User: always("alice"), Plan: always("pro"), Class: always("background")}}, "203.0.113.7", "",
			"GET /api/x from 203.0.113.7, user alice, plan pro, class background\n" + head +
				perUser + "    key:     user \"alice\"\n    limit:   1000: plan pro\n" + refused +
				all + "    key:     all requests of the policy\n    limit:   1000: plan pro\n" +
				refused + ip},
		{limit.Options{Caller: limit.Caller[*http.Request]{User: always("carol"), Plan: always("free"), Class: always("gold")}, Override: override}, "203.0.113.7", "",
			"GET /api/x from 203.0.113.7, user carol, plan free, class gold, which is none of critical, default, background and counts as default\n" + head +
				perUser + "    key:     user \"carol\"\n    limit:   500: an override of the key; without it 100: the rule has no limit for plan free\n" + refused +
				all + "    key:     all requests of the policy\n    limit:   500: the rule has no limit for plan free\n" +
				refused + ip},
		{limit.Options{Caller: limit.Caller[*http.Request]{Class: always("critical")}, OnRefusal: limit.Refusal{Status: 503}}, "203.0.113.7", "",
			"GET /api/x from 203.0.113.7, no user, class critical\n" + head +
				perUser + "    key:     user, which the request does not have: all such requests share one quota\n    limit:   100: the request has no plan\n    refused: answered with 503\n    outage:  local\n" +
				all + "    key:     all requests of the policy\n    limit:   500: the request has no plan\n" +
				"    refused: answered with 503\n    outage:  local\n" +
				perIP + "    exempt:  the rule neither charges nor refuses the request\n"},
		{limit.Options{Caller: limit.Caller[*http.Request]{User: always("probe"), Plan: always("enterprise"), Class: always("batch")}, Classes: []string{"critical", "default", "low", "batch"}, Proxies: trusted}, "192.0.2.8", "203.0.113.7",
			"GET /api/x from 203.0.113.7 through the proxy 192.0.2.8, user probe, plan enterprise, class batch\n" + head +
				perUser + "    key:     user \"probe\"\n    limit:   10000: plan enterprise\n" + refused +
				all + "    key:     all requests of the policy\n    limit:   500: the rule has no limit for plan enterprise\n" +
				refused +
				perIP + "    exempt:  the rule neither charges nor refuses the request\n"},
		{limit.Options{Classes: []string{"gold", "default"}}, "192.0.2.8", "203.0.113.7",
			"GET /api/x from 192.0.2.8, no user\nX-Forwarded-For does not name the client: 192.0.2.8 is no trusted proxy, or the header no address\n" + head +
				"  not valid with these options: testdata/valid/plans.yaml:11:10: reserve critical: write one of the classes gold, default, or add it to limit.Options.Classes\n" +
				"  not valid with these options: testdata/valid/plans.yaml:11:10: reserve default: no class is below it: write a higher one\n" +
				"  not valid with these options: testdata/valid/plans.yaml:12:9: exempt class critical: write one of the classes gold, default, or add it to limit.Options.Classes\n"},
		{limit.Options{Proxies: trusted}, "192.0.2.8", "10.0.0.1",
			"GET /api/x from 10.0.0.1 through the proxy 192.0.2.8, no user\nexempt by 10.0.0.0/8, in list office (testdata/valid/plans.yaml:4:13): no rule is charged, whatever the policy\n"},
	} {
		r := httptest.NewRequest("GET", "/api/x", nil)
		r.RemoteAddr = net.JoinHostPort(test.peer, "80")
		if test.header != "" {
			r.Header.Set("X-Forwarded-For", test.header)
		}
		assert.Equal(t, test.want, f.Explain(r, &test.options))
	}

	// A request that every rule exempts.
	r := httptest.NewRequest("POST", "/jobs", nil)
	assert.Contains(t, f.Explain(r, &limit.Options{Caller: limit.Caller[*http.Request]{User: always("root")}}), "\n  10/1h per user exempt user root exempt class critical (testdata/valid/plans.yaml:15:12)\n    exempt:  the rule neither charges nor refuses the request\n")
	assert.Contains(t, f.Explain(r, nil), "POST /jobs from 192.0.2.1, no user\n")
	assert.Panics(t, func() { f.Explain(r, &limit.Options{Classes: []string{"gold"}}) }, "no class default")
}
