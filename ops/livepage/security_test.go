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

// as returns an Authorize that takes the name and the role from a header.
func as(r *http.Request) (string, livepage.Role) {
	switch who := r.Header.Get("X-Who"); who {
	case "ann":
		return who, livepage.Operator
	case "bob":
		return who, livepage.Viewer
	case "eve":
		return who, -1
	}
	return "", livepage.Nobody
}

// TestLocalOnly checks that without Authorize only this machine sees the page, even with
// the token: no other peer, and no name that another site can point at this machine.
func TestLocalOnly(t *testing.T) {
	h := livepage.Handler(limit.New(nil, nil), &livepage.Options{Token: token})
	cookie := signIn(t, h, "/limits/", token)
	for _, test := range []struct {
		peer, host string
		want       int
	}{
		{"127.0.0.1:50000", "localhost:8080", 200},
		{"127.0.0.1:50000", "LOCALHOST.", 200},
		{"127.0.0.1:50000", "api.localhost:8080", 200},
		{"127.9.9.9:50000", "127.0.0.1", 200},
		{"[::1]:50000", "[::1]:8080", 200},
		{"[::1]:50000", "[::1]", 200},
		{"[::ffff:127.0.0.1]:50000", "127.0.0.1:80", 200},

		{"192.0.2.1:50000", "localhost:8080", 403},
		{"[2001:db8::1]:50000", "[::1]:8080", 403},
		{"", "localhost", 403},
		{"@", "localhost", 403}, // a Unix socket
		{"127.0.0.1:50000", "rebound.example:8080", 403},
		{"127.0.0.1:50000", "localhost.example", 403},
		{"127.0.0.1:50000", "notlocalhost", 403},
		{"127.0.0.1:50000", "127.0.0.1.nip.example", 403},
		{"127.0.0.1:50000", "0.0.0.0:8080", 403},
		{"127.0.0.1:50000", "[::]:8080", 403},
		{"127.0.0.1:50000", "[::1%25lo]", 403},
		{"127.0.0.1:50000", "10.0.0.1", 403},
		{"127.0.0.1:50000", "", 403},
	} {
		for _, path := range []string{"/limits/", "/limits/app.js", "/limits/peek", "/limits/reset", "/limits/?token=" + token} {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr, r.Host = test.peer, test.host
			r.AddCookie(cookie)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if test.want == 200 {
				assert.NotEqual(t, 403, w.Code, "%+v %s", test, path)
				continue
			}
			assert.Equal(t, 403, w.Code, "%+v %s", test, path)
			assert.Contains(t, w.Body.String(), "livepage.Options.Authorize")
			assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
		}
	}
}

// TestRoles checks who may do what with Authorize.
func TestRoles(t *testing.T) {
	s := serve(t, nil, &livepage.Options{Authorize: as})
	s.send(t, "POST", "/login", "")
	const reset = `{"policy":"POST /login","rule":"per-ip-1m","key":"127.0.0.1"}`
	for _, test := range []struct {
		who               string
		page, peek, reset int
	}{{"ann", 200, 200, 200}, {"bob", 200, 200, 403}, {"eve", 403, 403, 403}, {"", 403, 403, 403}} {
		status, _ := s.send(t, "GET", "/limits/", "", "X-Who", test.who)
		assert.Equal(t, test.page, status, test.who)
		status, _ = s.send(t, "GET", "/limits/app.js", "", "X-Who", test.who)
		assert.Equal(t, test.page, status, test.who)
		status, _ = s.send(t, "GET", "/limits/peek?policy=POST+/login&rule=per-ip-1m&key=127.0.0.1", "", "X-Who", test.who)
		assert.Equal(t, test.peek, status, test.who)
		status, body := s.send(t, "POST", "/limits/reset", reset, "X-Who", test.who, "Content-Type", "application/json")
		assert.Equal(t, test.reset, status, "%s: %s", test.who, body)
	}
}

// TestOrigins checks that only the page itself reads data and changes something.
func TestOrigins(t *testing.T) {
	s := serve(t, nil, &livepage.Options{Authorize: as})
	s.send(t, "POST", "/login", "")
	for _, test := range []struct {
		headers []string
		want    int
	}{
		{nil, 200}, // curl
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Origin", "http://limits.example", "Host", "limits.example"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Origin", "https://evil.example", "Host", "limits.example"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "http://limits.example:81", "Host", "limits.example"}, 403},
	} {
		headers := append([]string{"X-Who", "ann"}, test.headers...)
		status, _ := s.send(t, "GET", "/limits/peek?policy=POST+/login&rule=per-ip-1m&key=192.0.2.1", "", headers...)
		assert.Equal(t, test.want, status, "peek %v", test.headers)
		status, _ = s.send(t, "HEAD", "/limits/events", "", headers...)
		assert.Equal(t, test.want, status, "events %v", test.headers)
		status, _ = s.send(t, "POST", "/limits/reset", `{"policy":"POST /login","rule":"per-ip-1m","key":"192.0.2.1"}`,
			append(headers, "Content-Type", "application/json")...)
		assert.Equal(t, test.want, status, "reset %v", test.headers)
	}
}

// TestBodies checks that only JSON of the page changes something, and that errors say
// what to send.
func TestBodies(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(t, "POST", "/login", "")
	const reset, kind = `{"policy":"POST /login","rule":"per-ip-1m","key":"192.0.2.1"}`, "application/json"
	for _, test := range []struct {
		method, path, kind, body string
		want                     int
		says                     string
	}{
		{"POST", "reset", kind, reset, 200, "Reset 192.0.2.1 of per-ip-1m"},
		{"POST", "reset", "application/json; charset=utf-8", reset + "\n", 200, ""},
		{"POST", "reset", "text/plain", reset, 415, "Content-Type: application/json"},
		{"POST", "reset", "application/x-www-form-urlencoded", reset, 415, ""},
		{"POST", "reset", "", reset, 415, ""},
		{"GET", "reset", kind, reset, 405, "use POST"},
		{"PUT", "reset", kind, reset, 405, ""},
		{"POST", "peek", kind, reset, 405, "use GET"},
		{"POST", "", kind, reset, 405, ""},
		{"POST", "reset", kind, "", 400, "not an object of the page"},
		{"POST", "reset", kind, "[]", 400, ""},
		{"POST", "reset", kind, reset + reset, 400, "more than one object"},
		{"POST", "reset", kind, `{"policies":"all"}`, 400, "policies"},
		{"POST", "reset", kind, `{"policy":"` + strings.Repeat("x", 20_000) + `"}`, 400, "too large"},
		{"POST", "reset", kind, `{"policy":"x","rule":"y"}`, 400, "POST /login"},
		{"POST", "reset", kind, `{"policy":"POST /login","rule":"y"}`, 400, "per-ip-1m"},
		{"POST", "reset", kind, `{"policy":"POST /login","rule":"per-ip-1m","id":"abc"}`, 404, "choose a key of the list"},
		{"POST", "reset", kind, `{"policy":"POST /login","rule":"per-ip-1m","id":"abc","key":"x"}`, 400, "one of them"},
		{"POST", "ban", kind, `{"entry":"192.0.2.1"}`, 409, "livepage.Options.Bans"},
		{"POST", "unban", kind, `{"entry":"192.0.2.1"}`, 409, "livepage.Options.Bans"},
		{"POST", "override", kind, `{}`, 409, "livepage.Options.Overrides"},
		{"POST", "unoverride", kind, `{}`, 409, "livepage.Options.Overrides"},
		{"GET", "nothing.txt", "", "", 404, ""},
		{"GET", "nothing.js", "", "", 404, ""},
		{"GET", "..%2flivepage.go", "", "", 404, ""},
	} {
		status, body := s.send(t, test.method, "/limits/"+test.path, test.body, "Content-Type", test.kind)
		assert.Equal(t, test.want, status, "%+v: %s", test, body)
		assert.Contains(t, body, test.says)
	}
}

// TestHeaders checks the headers that keep a page of another site from using this one.
func TestHeaders(t *testing.T) {
	s := serve(t, nil, nil)
	for _, path := range []string{"?token=" + token, "", "app.js", "style.css", "peek", "nothing"} {
		cookies := s.cookie.Name + "=" + s.cookie.Value
		if path == "nothing" {
			cookies = ""
		}
		h := ask(s.Config.Handler, "GET", "/limits/"+path, cookies).Header()
		policy := h.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'")
		assert.Contains(t, policy, "script-src 'self'")
		assert.Contains(t, policy, "frame-ancestors 'none'")
		assert.NotContains(t, policy, "unsafe")
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
		assert.Equal(t, "no-store", h.Get("Cache-Control"))
		assert.Empty(t, h.Get("Access-Control-Allow-Origin"))
	}
	_, index := s.send(t, "GET", "/limits/", "")
	assert.NotContains(t, index, "style=", "inline styles are blocked")
	assert.NotContains(t, index, "<style")
	assert.NotContains(t, index, "<script>")
	assert.NotContains(t, index, "onclick")
}

// TestMounts checks that the page works at any prefix, cut off or not, and that a path
// without the slash at its end leads to the page.
func TestMounts(t *testing.T) {
	h := livepage.Handler(limit.New(nil, nil), &livepage.Options{Token: token})
	cookie := signIn(t, h, "/", token)
	get := func(h http.Handler, path string) *httptest.ResponseRecorder {
		return ask(h, "GET", path, cookie.Name+"="+cookie.Value)
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/a/b/limits/", h)
	mux.Handle("/cut/", http.StripPrefix("/cut", h))
	mux.Handle("/cut", http.StripPrefix("/cut", h))
	mux.Handle("/exact", h)
	for _, path := range []string{"/", "/a/b/limits/", "/cut/"} {
		assert.Equal(t, 200, get(mux, path).Code, path)
		assert.Equal(t, 200, get(mux, path+"app.js").Code, path)
		assert.Equal(t, 400, get(mux, path+"peek").Code, path)
	}
	for path, to := range map[string]string{"/exact?q=1": "./exact/?q=1", "/cut": "./cut/"} {
		w := get(mux, path)
		assert.Equal(t, 307, w.Code, path)
		assert.Equal(t, to, w.Header().Get("Location"))
	}
	for _, path := range []string{"//evil", "/https:evil", `/\evil`, "/%2fevil", "/a//evil"} {
		location := get(h, "http://localhost"+path).Header().Get("Location")
		assert.True(t, strings.HasPrefix(location, "./") && !strings.Contains(location, `\`), "%s: %s", path, location)
	}
}

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
