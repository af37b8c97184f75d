package livepage_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/livepage"
)

// FuzzRequests sends any request, and has a client choose any key. The page never panics,
// answers with JSON where it does not serve a file, and a state is one line of JSON of at
// most 64 kB.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "events", "q=api&sort=full&offset=3&limit=9&order=use&policy=api", "", "203.0.113.9")
	f.Add("GET", "peek", "policy=api&rule=per-user-1h&key=ann&plan=gold", "", "\xff\x00<b>")
	f.Add("POST", "reset", "", `{"policy":"api","rule":"per-user-1h","key":"ann"}`, "ann")
	f.Add("POST", "ban", "", `{"policy":"api","rule":"per-user-1h","id":"abc","seconds":9}`, "\u202e")
	f.Add("PUT", "a/..%2f", "%zz", `{`, "\n\ndata: x")
	f.Fuzz(func(t *testing.T, method, path, query, body, key string) {
		if len(key) > 10_000 {
			key = key[:10_000]
		}
		limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		h := livepage.Handler(limiter, &livepage.Options{Token: token})
		cookie := signIn(t, h, "/", token)
		policy := must.Get(limiter.Policy(limit.Named("api", limit.PerUser(time.Hour, 1), limit.Global(time.Hour, 9))))(t)
		for range 2 {
			if _, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": key}}); err != nil {
				key = "" // a key that the policy does not take
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // the stream has one state
		send := func(method, path, query string) *httptest.ResponseRecorder {
			r := &http.Request{ProtoMajor: 1, ProtoMinor: 1, Method: method, URL: &url.URL{Path: "/" + path, RawQuery: query}, Header: http.Header{"Content-Type": {"application/json"}},
				Host: "localhost", RemoteAddr: "127.0.0.1:1", Body: http.NoBody, RequestURI: "/" + path}
			if body != "" {
				r.Body = httptest.NewRequest("POST", "/", strings.NewReader(body)).Body
			}
			r.AddCookie(cookie)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(ctx))
			return w
		}
		w := send(method, path, query)
		if w.Header().Get("Content-Type") == "application/json" {
			assert.True(t, json.Valid(w.Body.Bytes()), "%q", w.Body)
		}
		w = send("GET", "events", query)
		require.Equal(t, 200, w.Code)
		head, data, ok := strings.Cut(w.Body.String(), "\ndata: ")
		require.True(t, ok)
		assert.Equal(t, "retry: 2000\nevent: state", head)
		state, rest, ok := strings.Cut(data, "\n")
		assert.True(t, ok && rest == "\n", "one line: %q", rest)
		assert.True(t, json.Valid([]byte(state)))
		assert.LessOrEqual(t, len(state), 64<<10)
	})
}
