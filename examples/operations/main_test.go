package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
)

// TestOperations guesses passwords, and checks what operators see of it.
func TestOperations(t *testing.T) {
	const token = "0123456789-abcdefghijk"
	service, operators := serve(t.Context(), redistest.Real(t), token)
	ask := func(h http.Handler, method, path string) (int, string) {
		r := httptest.NewRequest(method, "http://localhost"+path, nil)
		r.RemoteAddr = "127.0.0.1:1000"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	var codes []int
	for range 6 {
		code, _ := ask(service, "POST", "/login")
		codes = append(codes, code)
	}
	assert.Equal(t, []int{401, 401, 401, 401, 401, 429}, codes)
	code, body := ask(service, "GET", "/items/7")
	assert.Equal(t, []any{200, "item 7\n"}, []any{code, body})

	_, body = ask(operators, "GET", "/metrics")
	assert.Contains(t, body, `rate_limiting_requests_total{mode="exact",policy="GET /items/{id}",result="admitted"} 1`)
	assert.Contains(t, body, `rate_limiting_rule_refusals_total{policy="POST /login",rule="per-ip-1m"} 1`)
	assert.Contains(t, body, "rate_limiting_store_unavailable 0")

	server := httptest.NewServer(operators)
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	page, err := browser.Get(server.URL + "/limits/?token=" + token)
	require.NoError(t, err)
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<title>")

	response, err := browser.Get(server.URL + "/limits/events")
	require.NoError(t, err)
	defer response.Body.Close()
	first := make([]byte, 0, 64<<10)
	for !strings.HasSuffix(string(first), "\n\n") || !strings.Contains(string(first), "data: ") {
		part := make([]byte, 4096)
		n, err := response.Body.Read(part)
		require.NoError(t, err)
		first = append(first, part[:n]...)
	}
	assert.Contains(t, string(first), `"role":"operator","cannot":{}`)
	assert.Contains(t, string(first), "per-ip-1m allows 5 in 1m for 127.0.0.1")
}
