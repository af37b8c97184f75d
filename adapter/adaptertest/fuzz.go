package adaptertest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// Fuzz sends requests of any content, about half of them to a route, and checks that
// the adapter neither panics nor fails.
func Fuzz(f *testing.F, framework Framework) {
	router := framework(limit.New(nil, &limit.Options{
		Log:    slog.New(slog.DiscardHandler),
		Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }},
	}))
	router.Use(limit.Named("all", limit.Global(time.Second, 20_000)))
	router.Handle("GET", "/items/{id}", ok, keysOfAllKinds(time.Second)) // a short window, so that no rate is refused

	f.Add(true, "GET", "1", "page=1", "alice", "192.0.2.1:1234")
	f.Add(true, "GET", "%00", "page=%zz&&", "\xff\x00", "@")
	f.Add(false, "GET", "items/1", "page=1", "alice", "192.0.2.1:1234")
	f.Add(false, "BREW", "/items/", ";", " ", "[fe80::1%eth0]:80")
	f.Fuzz(func(t *testing.T, routed bool, method, path, query, value, peer string) {
		if routed {
			method, path = "GET", "items/"+path
		}
		plain, err := url.PathUnescape(path)
		if err != nil {
			plain = path
		}
		r := &http.Request{
			Method:     method,
			URL:        &url.URL{Path: "/" + plain, RawPath: "/" + path, RawQuery: query},
			Header:     http.Header{"X-Key": {value}, "X-User": {value}, "Cookie": {"session=" + value}, "X-Forwarded-For": {value}},
			Host:       "localhost",
			RemoteAddr: peer,
		}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r.WithContext(t.Context()))
		require.Less(t, w.Code, 500)
		assert.NotContains(t, w.Body.String(), "unavailable")
	})
}
