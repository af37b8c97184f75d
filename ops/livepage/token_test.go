package livepage_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/livepage"
)

// TestClientsOfProxy sends requests through a proxy on this machine that adds no header,
// such as nginx since 1.29.7: its clients read and change nothing.
func TestClientsOfProxy(t *testing.T) {
	s := serve(t, nil, nil)
	target := must.Get(url.Parse(s.URL))(t)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target) // and so the Host
		r.Out.Header.Del("X-Forwarded-For")
	}})
	defer proxy.Close()
	s.URL, s.cookie = proxy.URL, nil
	s.send(t, "POST", "/login", "")
	const reset = `{"policy":"POST /login","rule":"per-ip-1m","key":"127.0.0.1"}`
	status, _ := s.send(t, "POST", "/limits/reset", reset, "Content-Type", "application/json")
	assert.Equal(t, 403, status)
	for _, path := range []string{"", "app.js", "events", "peek?policy=POST+/login&rule=per-ip-1m&key=127.0.0.1"} {
		status, body := s.send(t, "GET", "/limits/"+path, "")
		assert.Equal(t, 403, status, path)
		assert.Contains(t, body, "This page needs its token")
	}
}

// TestRandomToken checks that a token is logged once, that it opens the page in a browser,
// and that the browser then has it in a cookie only.
func TestRandomToken(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	mux := http.NewServeMux()
	for _, path := range []string{"/a/limits/", "/b/limits/", "/"} {
		mux.Handle(path, livepage.Handler(limit.New(nil, nil), &livepage.Options{Log: log}))
	}
	tokens := regexp.MustCompile(`\?token=([A-Z2-7]+)`).FindAllStringSubmatch(logged.String(), -1)
	require.Len(t, tokens, 3, "%s", &logged)
	assert.Equal(t, 3, strings.Count(logged.String(), "\n"))
	assert.NotEqual(t, tokens[0][1], tokens[1][1])
	assert.GreaterOrEqual(t, 5*len(tokens[0][1]), 128, "bits")

	server := httptest.NewServer(mux)
	defer server.Close()
	jar := must.Get(cookiejar.New(nil))(t)
	browser := &http.Client{Jar: jar}
	get := func(path string) *http.Response {
		w := must.Get(browser.Get(server.URL + path))(t)
		w.Body.Close()
		return w
	}
	assert.Equal(t, 403, get("/a/limits/").StatusCode)
	assert.Equal(t, 403, get("/a/limits/?token="+tokens[1][1]).StatusCode, "that of another page")
	for i, path := range []string{"/a/limits/", "/b/limits/", "/"} {
		w := get(path + "?token=" + tokens[i][1])
		assert.Equal(t, 200, w.StatusCode)
		assert.Equal(t, path, w.Request.URL.RequestURI(), "without the token")
		assert.Equal(t, 200, get(path+"app.js").StatusCode)
	}
	assert.Equal(t, 200, get("/a/limits/").StatusCode, "each page has its own cookie")
}

// TestTokens checks which requests the token and its cookie let through.
func TestTokens(t *testing.T) {
	h := livepage.Handler(limit.New(nil, nil), &livepage.Options{Token: token})
	send := func(method, path, cookie string, headers ...string) *httptest.ResponseRecorder {
		return ask(h, method, path, cookie, headers...)
	}
	signed := send("GET", "/limits/?token="+token, "")
	assert.Equal(t, 303, signed.Code)
	assert.Equal(t, "./", signed.Header().Get("Location"))
	set := signed.Header().Get("Set-Cookie")
	assert.Regexp(t, `^livepage-[0-9a-f]{8}=`+token+`\.[A-Z2-7]{26}; HttpOnly; SameSite=Strict$`, set)
	assert.Contains(t, send("GET", "https://localhost/limits/?token="+token, "").Header().Get("Set-Cookie"), "; Secure")
	cookie, _, _ := strings.Cut(set, ";")
	name, _, _ := strings.Cut(cookie, "=")

	from := send("GET", "/limits/?token="+token, "", "Sec-Fetch-Site", "cross-site")
	assert.Equal(t, 200, from.Code, "a redirect from another site would not send the cookie")
	assert.Equal(t, "0; url=./", from.Header().Get("Refresh"))
	assert.NotEmpty(t, from.Header().Get("Set-Cookie"))
	again := send("GET", "/limits/?token="+token, cookie)
	assert.Equal(t, 303, again.Code)
	assert.Empty(t, again.Header().Get("Set-Cookie"), "a browser keeps its session")

	assert.Equal(t, 200, send("GET", "/limits/", cookie).Code)
	assert.Equal(t, 200, send("GET", "/limits/", name+"=wrong; "+cookie).Code, "of two cookies, one is right")
	assert.Equal(t, 415, send("POST", "/limits/reset", cookie).Code)
	for _, wrong := range []struct{ method, path, cookie string }{
		{"GET", "/limits/", ""},
		{"GET", "/limits/?token=", ""},
		{"GET", "/limits/?token=" + token[1:], ""},
		{"GET", "/limits/?token=" + token + "x", ""},
		{"GET", "/limits/?token=" + strings.ToUpper(token), ""},
		{"GET", "/limits/?token=wrong&token=" + token, ""},
		{"POST", "/limits/reset?token=" + token, ""},
		{"HEAD", "/limits/?token=" + token, ""},
		{"GET", "/limits/", name + "="},
		{"GET", "/limits/", name + "=."},
		{"GET", "/limits/", name + "=" + token[1:] + ".x"},
		{"GET", "/limits/", "livepage=" + token + ".x"},
	} {
		w := send(wrong.method, wrong.path, wrong.cookie)
		assert.Equal(t, 403, w.Code, "%+v", wrong)
		assert.Empty(t, w.Header().Get("Set-Cookie"))
		assert.NotContains(t, w.Body.String(), token)
	}
}

// TestInvalidTokens checks that a token that could be guessed, or changed on its way, is
// refused at the start.
func TestInvalidTokens(t *testing.T) {
	limiter := limit.New(nil, nil)
	for _, text := range []string{"secret", token[1:], strings.Repeat("x", 30) + ".", strings.Repeat("x", 30) + "&", strings.Repeat("é", 20)} {
		func() {
			defer func() {
				assert.Contains(t, recover(), "write at least 22 letters, digits, - and _, such as those of crypto/rand.Text()", text)
			}()
			livepage.Handler(limiter, &livepage.Options{Token: text})
		}()
	}
	assert.Panics(t, func() { livepage.Handler(limiter, &livepage.Options{Token: token, Authorize: as}) })
}
