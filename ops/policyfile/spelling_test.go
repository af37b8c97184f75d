package policyfile

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
)

// TestHosts sends one host in all spellings that mean the same. None of them goes around
// the policy.
func TestHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte("version: 1\npolicies:\n  login:\n    routes: [\"POST api.example.com/login\"]\n    rules: 1/1h global\n"), 0o600))
	p := must.Get(Open(path, nil))(t)
	require.NoError(t, p.Follow(t.Context(), limit.New(nil, nil)))
	h := p.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	send := func(host string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/login", nil)
		r.Host = host
		h.ServeHTTP(w, r)
		assert.Equal(t, host, r.Host)
		return w.Code
	}
	require.Equal(t, http.StatusNoContent, send("api.example.com"))
	for _, host := range []string{"api.example.com", "api.example.com:8080", "API.example.com", "Api.Example.Com:443", "api.example.com.", "API.example.com.:80"} {
		assert.Equal(t, http.StatusTooManyRequests, send(host), host)
	}
	for _, host := range []string{"example.com", "", "api.example.com.evil.org"} {
		assert.Equal(t, http.StatusNoContent, send(host), host)
	}
	_, err := Parse("p.yaml", []byte("version: 1\npolicies:\n  login:\n    routes: [\"POST API.example.com/login\"]\n    rules: 1/1h global\n"))
	assert.ErrorContains(t, err, `p.yaml:4:20: route "POST API.example.com/login": a host has no capitals, no port, and no dot at its end here: write "api.example.com"`)
}

// TestEncodedSlash sends paths with encoded slashes before a router that decodes them,
// as Gin does, and before a ServeMux, which does not.
func TestEncodedSlash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`version: 1
policies:
  login: {routes: ["POST /api/login"], rules: 1/1h global}
  item: {routes: ["/items/{id}"], rules: "2/1h per path id"}
  rest: {routes: ["/items/a/{rest}"], rules: "100/1h per path rest"}
`), 0o600))
	p := must.Get(Open(path, nil))(t)
	limiter := limit.New(nil, nil)
	require.NoError(t, p.Follow(t.Context(), limiter))
	mux := http.NewServeMux()
	mux.HandleFunc("/items/{id}", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Id", r.PathValue("id")) })
	byPath := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/login" {
			mux.ServeHTTP(w, r)
		}
	})
	h := p.Handler(byPath)
	send := func(method, path string) *httptest.ResponseRecorder {
		w := routetest.Do(h, method, path)
		return w
	}
	require.Equal(t, http.StatusOK, send("POST", "/api/login").Code)
	for _, path := range []string{"/api/login", "/api%2Flogin", "/api%2flogin", "/%61pi/login", "/api/%6Cogin", "//api%2Flogin", "/x/..%2fapi%2Flogin"} {
		assert.Equal(t, http.StatusTooManyRequests, send("POST", path).Code, path)
	}
	for range 2 {
		w := send("GET", "/items/a%2Fb")
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, "a/b", w.Header().Get("Id"))
		assert.Equal(t, []string{`"per-path-id-1h";q=2;w=3600`, `"per-path-rest-1h";q=100;w=3600`}, w.Header()["Ratelimit-Policy"])
	}
	assert.Equal(t, http.StatusTooManyRequests, send("GET", "/items/a%2Fb").Code)
	assert.Equal(t, http.StatusOK, send("GET", "/items/c").Code)
	f := must.Get(Read(path))(t)
	explained := f.Explain(httptest.NewRequest("GET", "/items/a%2Fb", nil), nil)
	for _, line := range []string{"all of these 2 policies decide\n", "policy item, by its route /items/{id} (", `path id "a/b"`, "policy rest, by its route /items/a/{rest} (", `path rest "b"`} {
		assert.Contains(t, explained, line)
	}
	policy := must.Get(limiter.Policy(limit.Named("rest")))(t)
	d := must.Get(policy.Peek(t.Context(), limit.Request{Keys: map[string]string{"path rest": "b"}}))(t)
	assert.EqualValues(t, 98, slices.Collect(d.Rules())[0].Remaining)
}

// TestUncleanPaths sends paths with empty parts and dots, and CONNECT, to a handler that
// takes every path as it is. A ServeMux alone would look up other ones.
func TestUncleanPaths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`version: 1
policies:
  files: {routes: ["/files/{rest...}"], rules: 1/1h global}
  tree: {routes: ["/trees/{id}/"], rules: 1/1h per path id}
  login: {routes: ["example.com/login", "example.com/{$}"], rules: 1/1h global}
  edit: {routes: ["/items/{id}/edit"], rules: 1/1h per path id}
  both: {routes: ["/one", "/two/{rest...}"], rules: 1/1h global}
`), 0o600))
	for _, test := range []struct{ first, then string }{
		{"GET example.com/files/a", "GET example.com/files/../a"},
		{"GET example.com/files/a", "GET example.com/files/%2E%2e/a"},
		{"GET example.com/files/a", "GET example.com/files/.."},
		{"GET example.com/files/../a", "CONNECT example.com/files/a/./../../b"},
		{"GET example.com/login", "CONNECT example.com:1/login"},
		{"GET example.com/login", "CONNECT Example.com.:1//x/../login"},
		{"GET example.com/login", "CONNECT example.com:1/"},
		{"GET example.com/trees/7/", "GET example.com/trees/7"},
		{"GET example.com/trees/7/x", "CONNECT example.com/trees/7"},
		{"GET example.com/items/7/edit", "GET example.com/x/../items//7/edit"},
		{"GET example.com/items/../edit", "GET example.com/items/%2e%2e/edit"},
		{"GET example.com/two/../one", "GET example.com/one"},
	} {
		p := must.Get(Open(path, nil))(t)
		require.NoError(t, p.Follow(t.Context(), limit.New(nil, nil)))
		h := p.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
		for i, text := range []string{test.first, test.then} {
			method, url, _ := strings.Cut(text, " ")
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "http://"+url, nil)
			r.Method = method
			h.ServeHTTP(w, r)
			assert.Equal(t, []int{http.StatusOK, http.StatusTooManyRequests}[i], w.Code, text)
			f := must.Get(Read(path))(t)
			assert.NotContains(t, f.Explain(r, nil), "none of the routes", text)
		}
	}
}
