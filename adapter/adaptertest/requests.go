package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// canceled checks that a client that has disconnected before the decision counts.
// Otherwise clients could run handlers for free by disconnecting.
func (s suite) canceled(t *testing.T) {
	ran := 0
	router := s.one(limit.New(nil, nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran++
		assert.Error(t, r.Context().Err(), "the handler sees that its client has disconnected")
		ok(w, r)
	}), limit.Rules(limit.PerIP(time.Hour, 2)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusTooManyRequests} {
		assert.Equal(t, want, do(ctx, router).Code)
	}
	assert.Equal(t, 2, ran)
}

// concurrent sends many requests at once: exactly as many as the tightest rule
// allows are admitted, from the first request of the route on.
func (s suite) concurrent(t *testing.T) {
	const workers, each = 16, 20
	router := s.framework(limit.New(nil, nil))
	var ran atomic.Int64
	router.Handle("GET", "/{id}", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) }),
		limit.Rules(limit.PerIP(time.Hour, 50), limit.Global(time.Hour, 1000)))
	c := serve(t, router)

	var done sync.WaitGroup
	answers := make(chan answer, workers*each)
	for range workers {
		done.Go(func() {
			for i := range each {
				a, err := c.try(t.Context(), "GET", fmt.Sprint("/", i), nil)
				if assert.NoError(t, err) {
					answers <- a
				}
			}
		})
	}
	done.Wait()
	close(answers)
	statuses := make(map[int]int)
	for a := range answers {
		statuses[a.StatusCode]++
	}
	assert.Equal(t, map[int]int{http.StatusOK: 50, http.StatusTooManyRequests: workers*each - 50}, statuses)
	assert.EqualValues(t, 50, ran.Load())
}

func (s suite) invalidRules(t *testing.T) {
	for _, rules := range []limit.RuleSet{
		{},
		limit.Rules(),
		limit.Rules(limit.PerIP(5, 2)), // the arguments are swapped: 5 ns
		limit.Rules(limit.PerIP(time.Minute, 0)),
		limit.Rules(limit.PerUser(time.Minute, 5)), // without a function for the user
		limit.Rules(limit.Rule{Limit: 1, Window: time.Minute}),
	} {
		assert.Panics(t, func() {
			s.framework(limit.New(nil, nil)).Handle("GET", "/", ok, rules)
		}, rules.String())
	}
}

// hostileRequests sends requests that no browser sends, over a plain connection.
// The answer may be anything but a failure.
func (s suite) hostileRequests(t *testing.T) {
	router := s.framework(limit.New(nil, &limit.Options{
		Log:    slog.New(slog.DiscardHandler),
		Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }},
	}))
	router.Use(limit.Named("before", limit.Per(limit.ByHeader("X-Before"), time.Hour, 100_000)))
	router.Handle("GET", "/items/{id}", ok, keysOfAllKinds(time.Hour))
	router.Handle("GET", "/", ok, keysOfAllKinds(time.Hour))

	var failures bytes.Buffer
	server := httptest.NewUnstartedServer(router)
	server.Config.MaxHeaderBytes = 16 << 20
	server.Config.ErrorLog = log.New(&failures, "", 0)
	server.Start()

	big := strings.Repeat("k", 1<<20)
	requests := map[string]string{
		"plain":             "GET /items/1 HTTP/1.1\r\nHost: x\r\n",
		"megabyte header":   "GET /items/1 HTTP/1.1\r\nHost: x\r\nX-Key: " + big + "\r\nX-User: " + big + "\r\nX-Before: " + big + "\r\n",
		"megabyte cookie":   "GET /items/1 HTTP/1.1\r\nHost: x\r\nCookie: session=" + big + "\r\n",
		"megabyte path":     "GET /items/" + big + " HTTP/1.1\r\nHost: x\r\n",
		"megabyte query":    "GET /items/1?page=" + big + " HTTP/1.1\r\nHost: x\r\n",
		"not UTF-8":         "GET /items/1 HTTP/1.1\r\nHost: x\r\nX-Key: \xff\xfe\x80\r\nX-User: \xc3\x28\r\nCookie: session=\xff\r\n",
		"NUL in path":       "GET /items/%00 HTTP/1.1\r\nHost: x\r\n",
		"NUL in root":       "GET /%00 HTTP/1.1\r\nHost: x\r\n",
		"bytes in path":     "GET /items/%ff%fe%80 HTTP/1.1\r\nHost: x\r\n",
		"CRLF in path":      "GET /items/%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: x\r\n",
		"broken escape":     "GET /items/%zz HTTP/1.1\r\nHost: x\r\n",
		"broken query":      "GET /items/1?page=%zz&;;&=%00 HTTP/1.1\r\nHost: x\r\n",
		"NUL in query":      "GET /items/1?page=%00%ff HTTP/1.1\r\nHost: x\r\n",
		"NUL in header":     "GET /items/1 HTTP/1.1\r\nHost: x\r\nX-Key: a\x00b\r\n",
		"white space":       "GET /items/%20%09 HTTP/1.1\r\nHost: x\r\nX-Key: \t \r\nX-User:\r\n",
		"looks like a hash": "GET /items/1 HTTP/1.1\r\nHost: x\r\nX-Key: sha256:" + strings.Repeat("0", 64) + "\r\n",
		"braces and stars":  "GET /items/{*}:%7B%7D HTTP/1.1\r\nHost: {x}\r\nX-Key: {a}:b*?[c]\r\n",
		"many headers":      "GET /items/1 HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-Key: a\r\n", 1000),
		"invalid forwarded": "GET /items/1 HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: ,,%%,[::\r\nForwarded: for=\"[;,=\r\n",
		"no host":           "GET /items/1 HTTP/1.0\r\n",
		"absolute":          "GET http://x/items/1 HTTP/1.1\r\nHost: x\r\n",
		"asterisk":          "OPTIONS * HTTP/1.1\r\nHost: x\r\n",
		"connect":           "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n",
		"dots":              "GET /items/../../../etc/passwd HTTP/1.1\r\nHost: x\r\n",
		"slashes":           "GET ////items////1 HTTP/1.1\r\nHost: x\r\n",
		"odd method":        "!#$%&'*+-.^_`|~ /items/1 HTTP/1.1\r\nHost: x\r\n",
	}
	for name, request := range requests {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		// The server may answer and close before it has read all.
		fmt.Fprint(conn, request, "Connection: close\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if assert.NoError(t, err, name) {
			assert.Less(t, response.StatusCode, 500, name)
			assert.NotContains(t, response.Header, "Set-Cookie", name)
		}
		conn.Close()
	}
	server.Close()
	assert.Empty(t, failures.String(), "the server logged a failure")
}

func keysOfAllKinds(window time.Duration) limit.RuleSet {
	const plenty = 100_000
	key := func(text string) limit.KeyResolver { return limit.MustParse("1/1s per " + text).Rules()[0].Key }
	return limit.Rules(
		limit.PerIP(window, plenty),
		limit.PerUser(window, plenty),
		limit.Per(limit.ByHeader("X-Key"), window, plenty),
		limit.Per(key("cookie session"), window, plenty),
		limit.Per(key("query page"), window, plenty),
		limit.Per(limit.ByPathValue("id"), window, plenty),
		limit.Per(limit.ByPathValue("id").And(limit.ByUser.Or(limit.ByHeader("X-Key"))), window, plenty),
	)
}

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
