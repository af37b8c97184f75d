package livepage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
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

// A service is a server with limited routes and the page at /limits/.
type service struct {
	*httptest.Server
	limiter *limit.Limiter
	cookie  *http.Cookie // of a browser that has signed in, without Authorize
}

const token = "0123456789-abcdefghijk"

// ask sends a request from this machine, with the cookies of a header and other headers
// as name, value, name, value.
func ask(h http.Handler, method, path, cookies string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	if cookies != "" {
		r.Header.Set("Cookie", cookies)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// signIn opens a page of this machine with its token, and returns the cookie.
func signIn(t testing.TB, page http.Handler, path, token string) *http.Cookie {
	t.Helper()
	w := ask(page, "GET", path+"?token="+token, "")
	require.Equal(t, 303, w.Code)
	require.Len(t, w.Result().Cookies(), 1)
	return w.Result().Cookies()[0]
}

func serve(t testing.TB, limits *limit.Options, options *livepage.Options) *service {
	t.Helper()
	if limits == nil {
		limits = &limit.Options{}
	}
	limits.Log = slog.New(slog.DiscardHandler)
	limiter := limit.New(nil, limits)
	if options == nil {
		options = &livepage.Options{}
	}
	if options.Authorize == nil {
		options.Token = token
	}
	mux := http.NewServeMux()
	mux.Handle("/limits/", livepage.Handler(limiter, options))
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux.Handle("POST /login", limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 5), limit.Global(time.Minute, 1000)))(ok))
	mux.Handle("GET /search", limiter.Limit(limit.Rules(limit.PerIP(time.Second, 50)))(ok))
	s := &service{Server: httptest.NewServer(mux), limiter: limiter}
	t.Cleanup(s.Close)
	if options.Authorize == nil {
		s.cookie = signIn(t, mux, "/limits/", token)
	}
	return s
}

// send returns the status and the body of the answer to a request with headers.
func (s *service) send(t testing.TB, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r := must.Get(http.NewRequest(method, s.URL+path, strings.NewReader(body)))(t)
	if s.cookie != nil {
		r.AddCookie(s.cookie)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	w := must.Get(http.DefaultTransport.RoundTrip(r))(t)
	defer w.Body.Close()
	text := must.Get(io.ReadAll(w.Body))(t)
	return w.StatusCode, string(text)
}

// state returns the first state of the events of a query, and its size.
func (s *service) state(t testing.TB, query string) (state map[string]any, size int) {
	t.Helper()
	return s.stateFor(t, query, "")
}

func (s *service) stateAs(t testing.TB, who string) (state map[string]any, size int) {
	t.Helper()
	return s.stateFor(t, "", who)
}

func (s *service) stateFor(t testing.TB, query, who string) (state map[string]any, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r := must.Get(http.NewRequestWithContext(ctx, "GET", s.URL+"/limits/events?"+query, nil))(t)
	r.Header.Set("X-Who", who)
	if s.cookie != nil {
		r.AddCookie(s.cookie)
	}
	w := must.Get(http.DefaultClient.Do(r))(t)
	defer w.Body.Close()
	require.Equal(t, 200, w.StatusCode)
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			require.NoError(t, json.Unmarshal([]byte(data), &state))
			return state, len(data)
		}
	}
	require.NoError(t, lines.Err())
	t.Fatal("the events end without a state")
	return nil, 0
}

// at returns a part of decoded JSON: by name in an object, by number in an array.
func at(t testing.TB, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			require.True(t, ok && m[step] != nil, "no %v of %v in %v", step, path, v)
			v = m[step]
		case int:
			list, ok := v.([]any)
			require.True(t, ok && len(list) > step, "no %v of %v in %v", step, path, v)
			v = list[step]
		}
	}
	return v
}

// TestState checks that the state shows the decisions of a service.
func TestState(t *testing.T) {
	s := serve(t, nil, &livepage.Options{Name: "api-1"})
	for range 7 {
		s.send(t, "POST", "/login", "")
	}
	s.send(t, "GET", "/search", "")
	state, _ := s.state(t, "")
	assert.Equal(t, "api-1", at(t, state, "instance"))
	assert.Equal(t, "local", at(t, state, "who"))
	assert.Equal(t, "operator", at(t, state, "role"))
	assert.Equal(t, map[string]any{"exact": 8.0}, at(t, state, "mode_counts"))
	assert.Equal(t, "exact", at(t, state, "modes", 0, "mode"))
	assert.Equal(t, 2.0, at(t, state, "policies", "total"))
	login := at(t, state, "policies", "rows", 0)
	assert.Equal(t, "POST /login", at(t, login, "name"))
	assert.Equal(t, 5.0, at(t, login, "admitted"))
	assert.Equal(t, 2.0, at(t, login, "refused"))
	assert.Equal(t, 1.0, at(t, login, "full"))
	assert.Equal(t, []any{5.0, 2.0}, at(t, login, "spark", 29))
	assert.Equal(t, map[string]any{"name": "per-ip-1m", "text": "5/1m per ip", "admitted": 5.0, "refused": 2.0, "full": 1.0,
		"shadow": false, "keyed": true, "kind": "ip"}, at(t, login, "rules", 0))
	assert.Equal(t, 7.0, at(t, login, "rules", 1, "admitted"), "the global rule had room for all")
	refusal := at(t, state, "refusals", 0)
	assert.Equal(t, 2.0, at(t, refusal, "n"))
	assert.Equal(t, "POST /login", at(t, refusal, "policy"))
	assert.Equal(t, "127.0.0.1", at(t, refusal, "rules", 0, "key"))
	assert.Regexp(t, `^per-ip-1m allows 5 in 1m for 127\.0\.0\.1, and has room again in (1m|\d+s)\.$`, at(t, refusal, "words"))
}

// TestPeekAndReset looks at a key, and makes its quota full again.
func TestPeekAndReset(t *testing.T) {
	s := serve(t, nil, nil)
	for range 6 {
		s.send(t, "POST", "/login", "")
	}
	const path = "/limits/peek?policy=POST+/login&rule=per-ip-1m&key=127.0.0.1"
	status, body := s.send(t, "GET", path, "")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, `{"capacity":5,"limit":5,"remaining":0,"used":1,"words":"0 of 5 left. The next request is refused.`)
	status, body = s.send(t, "POST", "/limits/reset", `{"policy":"POST /login","rule":"per-ip-1m","key":"127.0.0.1"}`, "Content-Type", "application/json")
	assert.Equal(t, 200, status, body)
	assert.Equal(t, `{"done":"Reset 127.0.0.1 of per-ip-1m. Its quota is full."}`+"\n", body)
	_, body = s.send(t, "GET", path, "")
	assert.Contains(t, body, `"remaining":5,"used":0,"words":"5 of 5 left. The quota is unused."`)
	status, _ = s.send(t, "POST", "/login", "")
	assert.Equal(t, 200, status)
}

// TestTypedKeys types values of requests, for which a rule has other keys.
func TestTypedKeys(t *testing.T) {
	s := serve(t, nil, nil)
	p := must.Get(s.limiter.Policy(limit.Named("api", limit.MustParse("either: 2/1h per user or ip; address: 3/1h per ip; both: 9/1h per ip and user").Rules()...)))(t)
	for range 2 {
		must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice", "ip": "2001:db8::5"}}))(t)
	}
	for _, test := range []struct {
		rule, key string
		status    int
		says      string
	}{
		{"either", "alice", 200, "0 of 2 left."}, {"either", "0=alice", 200, "0 of 2 left."}, {"address", "2001:db8::5", 200, "1 of 3 left."},
		{"address", "2001:db8::/64", 200, "1 of 3 left."}, {"both", "13:2001:db8::/645:alice", 200, "7 of 9 left."},
		{"either", "192.0.2.1", 400, "has several meanings"}, {"address", "alice", 400, "is not an address"}, {"both", "alice", 400, "write all of them"}, {"both", "2001:db8::1, alice", 200, "7 of 9 left."},
	} {
		status, body := s.send(t, "GET", "/limits/peek?"+url.Values{"policy": {"api"}, "rule": {test.rule}, "key": {test.key}}.Encode(), "")
		assert.Equal(t, test.status, status, "%v: %s", test, body)
		assert.Contains(t, body, test.says, test)
	}
	state, _ := s.state(t, "order=use")
	var shown []any
	for i := range at(t, state, "keys").([]any) {
		shown = append(shown, at(t, state, "keys", i, "key"))
	}
	assert.ElementsMatch(t, []any{"0=alice", "2001:db8::/64", "2001:db8::/64, alice"}, shown)
	for _, key := range [][2]string{{"either", "alice"}, {"address", "2001:db8::5"}} {
		status, body := s.send(t, "POST", "/limits/reset", `{"policy":"api","rule":"`+key[0]+`","key":"`+key[1]+`"}`, "Content-Type", "application/json")
		assert.Equal(t, 200, status, body)
	}
	d := must.Get(p.Peek(t.Context(), limit.Request{Keys: map[string]string{"user": "alice", "ip": "2001:db8::5"}}))(t)
	for r := range d.Rules() {
		assert.True(t, r.Name == "both" || r.Remaining == r.Capacity, r.Name)
	}
	status, body := s.send(t, "POST", "/limits/reset", `{"policy":"api","rule":"both","key":"alice"}`, "Content-Type", "application/json")
	assert.Equal(t, 400, status, body)
}
