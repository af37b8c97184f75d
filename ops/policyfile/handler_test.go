package policyfile_test

import (
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
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
