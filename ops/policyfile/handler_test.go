package policyfile_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
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

// TestUserOfNobody checks that rules by user are refused where nothing knows a user.
func TestUserOfNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "version: 1\nexempt: [user root]\npolicies: {a: {rules: 5/1m per ip, routes: [/]}}\n")
	p := must.Get(policyfile.Open(path, nil))(t)
	assert.ErrorContains(t, p.Follow(t.Context(), limit.New(nil, nil)), path+":2:10: no user resolver: set Caller.User of limit.Options")
	write(t, path, "version: 1\npolicies:\n  a: {rules: 5/1m per ip; 5/1m per user, routes: [POST /a]}\n")
	p = must.Get(policyfile.Open(path, nil))(t)
	assert.ErrorContains(t, p.Follow(t.Context(), limit.New(nil, nil)), path+":3:27: no user resolver")
	assert.Panics(t, func() { p.Handler(ok) })
	require.NoError(t, p.Follow(t.Context(), limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}})))
	assert.ErrorContains(t, p.Follow(t.Context(), limit.New(nil, nil)), "Follow was called before")
}

// TestRoutes checks which policy decides a request, before a router of any kind.
func TestRoutes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	p := start(t, path, `version: 1
policies:
  all: {routes: ["/"], rules: "all: 100/1m per ip"}
  login: {routes: ["POST /login", "POST /signin"], rules: "login: 2/1m per ip"}
  item: {routes: ["GET /items/{id}"], rules: "item: 1/1m per path id"}
  host: {routes: ["admin.example.com/"], rules: "admin: 3/1m per ip"}
`, nil)
	for _, test := range []struct {
		method, path string
		status       int
		rule         string
	}{
		{"GET", "/login", 200, "all"},
		{"POST", "/login", 200, "login"},
		{"POST", "/signin", 200, "login"},
		{"POST", "/login", 429, "login"},
		{"POST", "//login", 429, "login"},
		{"POST", "/x/../login", 429, "login"},
		{"GET", "/items/1", 200, "item"},
		{"GET", "/items/2", 200, "item"},
		{"GET", "/items/1", 429, "item"},
		{"HEAD", "/items/1", 429, "item"},
		{"GET", "//items/1", 429, "item"},
		{"GET", "/items/1/more", 200, "all"},
		{"GET", "", 200, "all"},
		{"CONNECT", "/login", 200, "all"},
	} {
		status, header := p.send(test.method, test.path, "192.0.2.1")
		assert.Equal(t, test.status, status, "%s %s", test.method, test.path)
		assert.Contains(t, header, `"`+test.rule+`"`, "%s %s", test.method, test.path)
	}
	mux := http.NewServeMux()
	var id, pattern string
	mux.HandleFunc("GET /items/{key}", func(_ http.ResponseWriter, r *http.Request) { id, pattern = r.PathValue("key"), r.Pattern })
	p.handler = p.policies.Handler(mux)
	status, _ := p.send("GET", "/items/9", "192.0.2.1")
	assert.Equal(t, []string{"200", "9", "GET /items/{key}"}, []string{strconv.Itoa(status), id, pattern})
}

// TestUnknownClass checks that the limiter, which knows the classes, refuses a file with
// another one: at the start, and in a file that changes. A policy that only code attaches
// is checked too.
func TestUnknownClass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	const reserves, exempts = "version: 1\npolicies:\n  login: {rules: 9/1m per ip reserve vip 2, routes: [POST /login]}\n",
		"version: 1\npolicies:\n  other: {rules: 5/1h global; 9/1m per ip exempt class vip}\n"
	const want = ": write one of the classes critical, default, background, or add it to limit.Options.Classes"
	for text, place := range map[string]string{reserves: ":3:18: reserve vip", exempts: ":3:31: exempt class vip"} {
		write(t, path, text)
		p := must.Get(policyfile.Open(path, &policyfile.Options{Log: slog.New(slog.DiscardHandler)}))(t)
		class := always("")
		assert.ErrorContains(t, p.Follow(t.Context(), limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Class: class}})), path+place+want)
		require.NoError(t, p.Follow(t.Context(), limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Class: class}, Classes: []string{"vip", "default"}})))
	}
	synctest.Test(t, func(t *testing.T) {
		p := start(t, path, login(5), nil)
		p.limits(5)
		for text, place := range map[string]string{reserves: ":3:18: reserve vip", exempts: ":3:31: exempt class vip"} {
			write(t, path, text)
			p.limits(5)
			assert.ErrorContains(t, p.policies.Status().Err, path+place+want)
		}
		write(t, path, login(6))
		p.limits(6)
	})
}

// TestPlans checks that a caller has the limit of its plan by a file, and by the file
// that replaces it.
func TestPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	file := func(pro string) string {
		return "version: 1\npolicies:\n  login: {rules: 5/1m per ip plan pro " + pro + " exempt ip 10.0.0.0/8, routes: [POST /login]}\n"
	}
	write(t, path, file("8"))
	synctest.Test(t, func(t *testing.T) {
		var log logbook.Book
		p := must.Get(policyfile.Open(path, &policyfile.Options{Log: log.Log()}))(t)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		require.NoError(t, p.Follow(ctx, limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Plan: user}})))
		h := p.Handler(ok)
		header := func(address, plan string) string {
			r := httptest.NewRequest("POST", "/login", nil)
			r.RemoteAddr = address + ":1"
			r.Header.Set("X-User", plan)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Header().Get("RateLimit-Policy")
		}
		for pro := range 2 {
			want := []string{"8", "50"}[pro]
			write(t, path, file(want))
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			assert.Equal(t, `"per-ip-1m";q=`+want+`;w=60`, header("192.0.2.1", "pro"))
			assert.Equal(t, `"per-ip-1m";q=5;w=60`, header("192.0.2.2", "free"))
			assert.Empty(t, header("10.0.0.1", "free"), "exempt")
		}
	})
}
