package policyfile

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// TestHosts sends one host in all spellings that mean the same. None of them goes around
// the policy.
func TestHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte("version: 1\npolicies:\n  login:\n    routes: [\"POST api.example.com/login\"]\n    rules: 1/1h global\n"), 0o600))
	p, err := Open(path, nil)
	require.NoError(t, err)
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
	_, err = Parse("p.yaml", []byte("version: 1\npolicies:\n  login:\n    routes: [\"POST API.example.com/login\"]\n    rules: 1/1h global\n"))
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
	p, err := Open(path, nil)
	require.NoError(t, err)
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
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
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
	policy, err := limiter.Policy(limit.Named("rest"))
	require.NoError(t, err)
	d, err := policy.Peek(t.Context(), limit.Request{Keys: map[string]string{"path rest": "b"}})
	require.NoError(t, err)
	assert.EqualValues(t, 98, slices.Collect(d.Rules())[0].Remaining)
}
