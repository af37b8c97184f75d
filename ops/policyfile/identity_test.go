package policyfile_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/policyfile"
)

// TestIdentity checks that lists, rules and Explain take the same address and user of a
// request, by the options of the limiter alone.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	for _, test := range []struct {
		lists   string
		proxies limit.Proxies
		client  string // as the proxy at 127.0.0.1 says
		user    string
		passed  int
		status  int
		explain string
	}{
		{"exempt: [127.0.0.0/8]", trusted, "203.0.113.7", "", 3, 429, "POST /login from 203.0.113.7 through the proxy 127.0.0.1"},
		{"exempt: [127.0.0.0/8]", trusted, "127.0.0.9", "", 6, 200, "exempt by 127.0.0.0/8"},
		{"exempt: [127.0.0.0/8]", limit.Proxies{Hops: 1}, "203.0.113.7", "", 3, 429, "exempt: no entry matches"},
		{"exempt: [203.0.113.0/24]", limit.Proxies{}, "203.0.113.7", "", 3, 429, "exempt: no entry matches"},
		{"barred: [203.0.113.7]", trusted, "203.0.113.7", "", 0, 403, "barred by 203.0.113.7"},
		{"barred: [127.0.0.1]", trusted, "203.0.113.7", "", 3, 429, "barred: no entry matches"},
		{"barred: [user mallory]", trusted, "203.0.113.7", " mallory ", 0, 403, "barred by user mallory"},
		{"exempt: [user root]", limit.Proxies{}, "203.0.113.7", "root", 6, 200, "exempt by user root"},
	} {
		write(t, path, "version: 1\n"+test.lists+"\npolicies:\n  login: {routes: [POST /login], rules: 3/1m per ip}\n")
		p := must.Get(policyfile.Open(path, nil))(t)
		options := &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Proxies: test.proxies, Exempt: p.Exempt, Bar: p.Bar}
		require.NoError(t, p.Follow(t.Context(), limit.New(nil, options)))
		h := p.Handler(ok)
		r := httptest.NewRequest("POST", "/login", nil)
		r.RemoteAddr = "127.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", test.client)
		r.Header.Set("X-User", test.user)
		passed, status := 0, 0
		for range 6 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if status = w.Code; status == http.StatusOK {
				passed++
			}
		}
		assert.Equal(t, []int{test.passed, test.status}, []int{passed, status}, "%+v", test)
		f := must.Get(policyfile.Read(path))(t)
		assert.Contains(t, f.Explain(r, options), test.explain)
	}
}

// TestExemptProxy checks that a file that exempts a trusted proxy says so with a code, and
// Explain in words.
func TestExemptProxy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	proxies := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}
	for entry, contains := range map[string]bool{"office": true, "10.0.0.5": true, `'"10.0.0.0/30"'`: false, `'"10.0.0.4/30" # proxies'`: true,
		"192.0.2.0/24": false, "agent Bot": false} {
		write(t, path, "version: 1\nlists: {office: [10.0.0.0/8]}\nexempt: ["+entry+"]\npolicies:\n  login: {routes: [POST /login], rules: 3/1m per ip}\n")
		var log logbook.Book
		p := must.Get(policyfile.Open(path, &policyfile.Options{Log: log.Log()}))(t, entry)
		require.NoError(t, p.Follow(t.Context(), limit.New(nil, &limit.Options{Proxies: proxies, Exempt: p.Exempt, Bar: p.Bar, Log: log.Log()})))
		h := p.Handler(ok)
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil))
		}
		f := must.Get(policyfile.Read(path))(t)
		lines, explained := strings.Join(log.Lines(), "\n"), f.Explain(httptest.NewRequest("POST", "/login", nil), &limit.Options{Proxies: proxies})
		want := 0
		if contains {
			want = 1
			assert.Contains(t, lines, "contains the trusted proxy 10.0.0.5/32")
			assert.Contains(t, explained, " contains the trusted proxy 10.0.0.5/32: requests that it sends without the address of a client are exempt")
		} else {
			assert.NotContains(t, explained, "trusted proxy")
		}
		assert.Equal(t, want, strings.Count(lines, "code=LIMIT-117"), "%s: %s", entry, lines)
	}
}

// TestLifted checks which changes of a file are logged as ones that lift limits, and that
// a file without policies needs the word.
func TestLifted(t *testing.T) {
	const head = "version: 1\npolicies:\n"
	const api, search = "  api: {routes: [/api/, POST /login], rules: 5/1m per ip}\n", "  search: {routes: [GET /search], rules: 9/1m per ip}\n"
	for _, test := range []struct{ before, after, lifted string }{
		{head + api + search, head + api, `"policy search (9/1m per ip)"`},
		{head + api + search, "version: 1\npolicies: none\n", `"policy api (5/1m per ip); policy search (9/1m per ip)"`},
		{head + api, head + "  api: {routes: [/api/], rules: 5/1m per ip}\n", `"route POST /login of policy api"`},
		{head + api, head + "  api: {rules: 5/1m per ip}\n", `"route /api/ of policy api; route POST /login of policy api"`},
		{head + api, head + "  api: {routes: [GET /api/, POST /login], rules: 5/1m per ip}\n", `"route /api/ of policy api"`},
		{head + api, head + "  api: {routes: [/api/, \"/{page}\"], rules: 500/1m per ip}\n", `"route POST /login of policy api"`},
		{head + api, head + "  api: {routes: [/], rules: 5/1m per ip shadow}\n", `"route /api/ of policy api; route POST /login of policy api"`},
		{head + api, head + "  api: {routes: [/api/], rules: 5/1m per ip}\n  login: {routes: [POST /login], rules: 5/1m per ip}\n", ""},
		{head + "  api: {routes: [\"/a/{x}/{$}\"], rules: 5/1m per ip}\n", head + "  api: {routes: [\"/a/{y}/\"], rules: 5/1m per ip}\n", `"route /a/{x}/{$} of policy api"`},
		{head + "  api: {routes: [\"/a/{x...}\"], rules: 5/1m per ip}\n", head + "  api: {routes: [\"/a/{y}\"], rules: 5/1m per ip}\n", `"route /a/{x...} of policy api"`},
		{"version: 1\npolicies: none\n", head + api, ""},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			p := start(t, filepath.Join(dir, "policy.yaml"), test.before, nil)
			p.log.Lines() // are read
			write(t, p.path, test.after)
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			require.NoError(t, p.policies.Status().Err)
			lines := strings.Join(p.log.Lines(), "\n")
			if test.lifted == "" {
				assert.NotContains(t, lines, "LIMIT-", test.after)
				return
			}
			assert.Equal(t, 1, strings.Count(lines, "code=LIMIT-207 source="+p.path+` lifted=`+test.lifted), "%s: %s", test.after, lines)
		})
	}
	for _, empty := range []string{"version: 1\npolicies: {}\n", "version: 1\npolicies:\n", "version: 1\n", "", "version: 1\npolicies:\n  login: {routes: [POST /login], rules: []}\n"} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			p := start(t, filepath.Join(dir, "policy.yaml"), login(5), nil)
			write(t, p.path, empty)
			p.limits(5)
			assert.Error(t, p.policies.Status().Err, empty)
			assert.Contains(t, strings.Join(p.log.Lines(), "\n"), "code=LIMIT-206")
		})
	}
}

// TestUnmet checks that routes that no request has matched are in the status, and in the
// log after an hour.
func TestUnmet(t *testing.T) {
	dir := t.TempDir()
	const text = "version: 1\npolicies:\n  api: {routes: [GET /api/x, /rare, POST /login], rules: 5/1m per ip}\n"
	synctest.Test(t, func(t *testing.T) {
		p := start(t, filepath.Join(dir, "policy.yaml"), text, nil)
		assert.Equal(t, []string{"GET /api/x", "/rare", "POST /login"}, p.policies.Status().Unmet)
		p.log.Lines() // are read
		time.Sleep(59 * time.Minute)
		p.send("POST", "/login", "192.0.2.1")
		p.send("POST", "/api/x", "192.0.2.1")
		write(t, p.path, text+"  new: {routes: [/new], rules: 5/1m per ip}\n")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"GET /api/x", "/rare", "/new"}, p.policies.Status().Unmet, "what a route met counts for the next file")
		assert.NotContains(t, strings.Join(p.log.Lines(), "\n"), "LIMIT-118", "an hour after the last change")
		p.send("HEAD", "/api/x", "192.0.2.1")
		time.Sleep(3 * time.Hour)
		assert.Equal(t, 1, strings.Count(strings.Join(p.log.Lines(), "\n"), "code=LIMIT-118 source="+p.path+` routes="/rare; /new" after=1h0m0s`))
		p.send("GET", "/rare", "192.0.2.1")
		p.send("GET", "/new", "192.0.2.1")
		assert.Empty(t, p.policies.Status().Unmet)
	})
	for name, called := range map[string]bool{"no requests": true, "no handler": false} {
		synctest.Test(t, func(t *testing.T) {
			var log logbook.Book
			p := must.Get(policyfile.Open(filepath.Join(dir, "policy.yaml"), &policyfile.Options{Log: log.Log()}))(t)
			require.NoError(t, p.Follow(t.Context(), limit.New(nil, nil)))
			if called {
				p.Handler(ok)
			}
			time.Sleep(2 * time.Hour)
			assert.Equal(t, !called, strings.Contains(strings.Join(log.Lines(), "\n"), "LIMIT-118"), name)
		})
	}
}
