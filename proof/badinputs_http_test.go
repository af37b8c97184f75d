package proof

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/throttle"
)

// badRequests are bad uses of connections and of requests.
var badRequests = []badInput{
	{56, "other spellings of a path", func(r *row) {
		// Other routes answer some of these. A request that reaches the handler is
		// counted on its route.
		r.runs(1, behind(limit.PerIP(time.Hour, 1)), func(h http.Handler) {
			for _, path := range []string{"/login", "/login/", "//login", "/LOGIN", "/./login", "/x/../login", "/login;x", "/login%00", "/lo%67in",
				"/login\x00", "/%6cogin", "/login?", "/login#", "/login ", strings.Repeat("/", 10_000) + "login", "/\xff"} {
				do(h, "192.0.2.1:1", path)
			}
		})
		r.runs(1, behind(limit.PerIP(time.Hour, 1)), func(h http.Handler) {
			server := r.listen(h)
			for _, path := range []string{"/login", "/login/", "//login", "/LOGIN", "/./login", "/x/../login", "/login;x", "/lo%67in", "/%6cogin",
				"/login?x", "/login%2f", "/%2e/login", "http://example.com/login", "*"} {
				r.raw(server.Listener.Addr().String(), "POST "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
		})
	}},
	{57, "other methods", func(r *row) {
		methods := []string{"POST", "GET", "HEAD", "OPTIONS", "TRACE", "post", "BREW", "POST%20", "X"}
		ask := func(h http.Handler) {
			for _, method := range methods {
				q := httptest.NewRequest(http.MethodPost, "/login", nil)
				q.Method = method
				q.Header.Set("X-HTTP-Method-Override", "POST")
				h.ServeHTTP(httptest.NewRecorder(), q)
			}
		}
		r.runs(1, behind(limit.PerIP(time.Hour, 1)), ask) // on a route for POST
		for name, serve := range frameworks {
			// The methods of one declaration share its quota, and so do all with a named
			// set. EachRoute counts each method alone; those that clients invent are one.
			for scope, set := range map[string]limit.RuleSet{"rules": limit.Rules(limit.PerIP(time.Hour, 1)),
				"each": limit.EachRoute(limit.PerIP(time.Hour, 1)), "named": limit.Named("login", limit.PerIP(time.Hour, 1))} {
				ran, book := make(map[string]int), new(logbook.Book)
				ask(serve(limit.New(nil, &limit.Options{Log: book.Log()}), "/login", func(_ http.ResponseWriter, q *http.Request) { ran[q.Method]++ }, set))
				all, most, warnings := 0, 1, 0
				switch {
				case name == "http":
				case scope == "each":
					most = 5
				case scope == "rules":
					warnings = 1
				}
				for _, n := range ran {
					all += n
				}
				r.ran(all, most, "%s, %s: %v", name, scope, ran)
				assert.Equal(r, warnings, strings.Count(strings.Join(book.Lines(), "\n"), "LIMIT-101"), "%s, %s", name, scope)
			}
		}
	}},
	{58, "streams that are opened and reset", func(r *row) {
		resets(r, "memory", func() core.Store { return nil })
		client, servers := redistest.Client(r), 0
		resets(r, "redis", func() core.Store { // a handler may be late, when the next server is up
			servers++
			return redisstore.New(client, &redisstore.Options{Timeout: patient.Timeout, Prefix: fmt.Sprint("server", servers)})
		})
	}},
	{59, "a client that disconnects while it waits", func(r *row) {
		queue := limit.Named("line", limit.Rule{Name: "queue", Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{Burst: 2}},
			limit.Global(time.Hour, 10))
		for name, serve := range frameworks {
			var ran atomic.Int64
			waits := make(chan time.Duration, 10)
			limiter := limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, _ error) { waits <- d.Delay }})
			server := r.listen(serve(limiter, "POST /login", func(http.ResponseWriter, *http.Request) { ran.Add(1) }, queue))
			response := must.Get(http.Post(server.URL+"/login", "", nil))(r)
			response.Body.Close()
			require.Zero(r, <-waits)
			for range 3 { // each gets the slot of the one before
				ctx, leave := context.WithCancel(r.Context())
				q := must.Get(http.NewRequestWithContext(ctx, "POST", server.URL+"/login", nil))(r)
				go func() {
					assert.Greater(r, <-waits, 50*time.Minute)
					leave()
				}()
				_, err := http.DefaultClient.Do(q)
				require.ErrorIs(r, err, context.Canceled)
				redistest.Await(r, 10*time.Second, "its slot and its unit are given back", func() bool {
					d := must.Get(bind(limiter, queue).Peek(r.Context(), limit.Request{}))(r)
					left := slices.Collect(d.Rules())
					return left[0].Remaining == 2 && left[1].Remaining == 9
				})
			}
			r.ran(int(ran.Load()), 1, name)
		}
		// Outside HTTP, a context that has ended takes nothing.
		ended, cancel := context.WithCancel(r.Context())
		cancel()
		limiter, jobs, keys := limit.New(nil, nil), limit.Named("jobs", limit.PerIP(time.Hour, 5)), map[string]string{"ip": "192.0.2.1"}
		_, err := bind(limiter, jobs).Take(ended, limit.Request{Keys: keys})
		assert.ErrorIs(r, err, context.Canceled)
		r.left(limiter, jobs, keys, 5)
	}},
	{60, "requests of other forms", func(r *row) {
		r.runs(2, behind(limit.PerIP(time.Hour, 2)), func(h http.Handler) {
			server := r.listen(h)
			for _, form := range []struct {
				text     string
				statuses []int
			}{
				{"POST /login\r\n", []int{400}}, // HTTP/0.9
				{"POST /login HTTP/1.1\r\nContent-Length: 0\r\n\r\n", []int{400}},
				{"POST /login HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n", []int{400}},
				{"POST /login HTTP/9.9\r\nHost: a\r\nContent-Length: 0\r\n\r\n", []int{400, 505}},
				{"POST /login HTTP/1.0\r\n\r\n", []int{200}},
				{"POST /login HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0,1-1,2-2\r\nContent-Length: 0\r\n\r\n", []int{200}},
				{"POST /login HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0\r\nContent-Length: 0\r\n\r\n", []int{429}},
				{"POST /login HTTP/1.0\r\n\r\n", []int{429}},
				{"POST /login HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 0\r\n\r\n", []int{429}},
			} {
				assert.Contains(r, form.statuses, r.raw(server.Listener.Addr().String(), form.text), "%q", form.text)
			}
		})
	}},
	{61, "a body that is announced and never sent", func(r *row) {
		one := limit.Named("one", limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}})
		slow := limit.Rules(throttle.Bandwidth(limit.Everyone, time.Second, 1_000_000))
		for name, serve := range throttled {
			var ran atomic.Int64
			reads := make(chan error, 10)
			limiter := limit.New(nil, nil)
			server := r.listen(serve(limiter, one, slow, func(w http.ResponseWriter, q *http.Request) {
				ran.Add(1)
				_, err := io.ReadAll(q.Body)
				reads <- err
			}), func(s *http.Server) { s.ReadTimeout = 200 * time.Millisecond })
			r.raw(server.Listener.Addr().String(), "POST /login HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
			assert.ErrorIs(r, <-reads, os.ErrDeadlineExceeded, name)
			redistest.Await(r, 10*time.Second, "its slot is free", func() bool {
				d := must.Get(bind(limiter, one).Peek(r.Context(), limit.Request{}))(r)
				return d.Allowed
			})
			response := must.Get(http.Post(server.URL+"/login", "", strings.NewReader("body")))(r)
			response.Body.Close()
			assert.Equal(r, http.StatusOK, response.StatusCode, name)
			assert.NoError(r, <-reads)
			r.ran(int(ran.Load()), 2, name)
		}
	}},
	{62, "bodies of unknown and of wrong length", func(r *row) {
		one := limit.Named("one", limit.Rule{Key: limit.Everyone, Limit: 10, Algorithm: limit.Concurrency{}})
		slow := limit.Rules(throttle.Bandwidth(limit.Everyone, time.Second, 1_000_000)) // permits of 100 kB
		const size = 300_000
		body := strings.Repeat("x", size)
		for name, serve := range throttled {
			for _, request := range []struct {
				text        string
				read        int64
				least, most int64 // bytes that are charged
			}{
				{fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body), size, size, size * 3 / 2},
				{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body), size, size, size},
				{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size/3, body), size / 3, size / 3, size / 3},
				{"Content-Length: 1000000000\r\n\r\n0123456789", 10, 10, 500_000}, // one permit: half of the burst
				{"Content-Length: -1\r\n\r\n0123456789", 0, 0, 0},
				{"Content-Length: 10\r\nContent-Length: 11\r\n\r\n0123456789", 0, 0, 0},
			} {
				store := &byteStore{Store: memstore.New(nil)}
				var read atomic.Int64
				server := r.listen(serve(limit.New(store, nil), one, slow, func(w http.ResponseWriter, q *http.Request) {
					n, _ := io.Copy(io.Discard, q.Body)
					read.Add(n)
				}), func(s *http.Server) { s.ReadTimeout = 300 * time.Millisecond })
				r.raw(server.Listener.Addr().String(), "POST /login HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+request.text)
				server.Close()
				charged := store.bytes.Load()
				assert.Equal(r, request.read, read.Load(), "%s %.30q", name, request.text)
				r.opens += int(min(1, max(0, read.Load()-charged)))
				assert.True(r, request.least <= charged && charged <= request.most, "%s %.30q: charged %d", name, request.text, charged)
			}
		}
	}},
	{63, "a writer that is asked for more than writing", func(r *row) {
		settled := limit.PerIP(time.Hour, 1000)
		settled.Settle = rules.OnStatus(http.StatusUnauthorized)
		plenty := limit.Rules(limit.PerIP(time.Hour, 1000))
		bytes := limit.Rules(throttle.Bandwidth(limit.Everyone, time.Second, 100_000_000))
		for name, serve := range frameworks {
			for _, http2 := range []bool{false, true} {
				want, hijacks := []string{"SetReadDeadline true", "SetWriteDeadline true", "Copy true", "Flush true"}, []string{""}
				if !http2 {
					want, hijacks = append(want, "Hijack true"), append(hijacks, "yes")
				}
				able := func(serve func(http.HandlerFunc) http.Handler) (list []string) {
					can := make(chan []string, 1)
					server := httptest.NewUnstartedServer(serve(func(w http.ResponseWriter, q *http.Request) {
						can <- abilities(w, q.Header.Get("Hijack") != "")
					}))
					server.EnableHTTP2 = http2
					server.StartTLS()
					defer server.Close()
					for _, hijack := range hijacks {
						q := must.Get(http.NewRequest("POST", server.URL+"/login", nil))(r)
						q.Header.Set("Hijack", hijack)
						if response, err := server.Client().Do(q); err == nil { // not if it is hijacked
							must.Get(io.Copy(io.Discard, response.Body))(r)
							response.Body.Close()
						}
						list = append(list, <-can...)
					}
					return list
				}
				l := limit.New(nil, nil)
				bare := able(func(h http.HandlerFunc) http.Handler { return serve(l, "POST /login", h) })
				assert.Equal(r, want, bare, name)
				assert.Equal(r, bare, able(func(h http.HandlerFunc) http.Handler { return serve(l, "POST /login", h, plenty, limit.Rules(settled)) }), name)
				assert.Equal(r, bare, able(func(h http.HandlerFunc) http.Handler { return throttled[name](l, plenty, bytes, h) }), name)
			}
		}
	}},
}

// abilities returns what else a response can do beside writing.
func abilities(w http.ResponseWriter, hijack bool) (list []string) {
	add := func(what string, err error) { list = append(list, fmt.Sprint(what, " ", err == nil)) }
	control := http.NewResponseController(w)
	if hijack {
		conn, _, err := control.Hijack()
		add("Hijack", err)
		if err == nil {
			conn.Close()
		}
		return list
	}
	add("SetReadDeadline", control.SetReadDeadline(time.Now().Add(time.Minute)))
	add("SetWriteDeadline", control.SetWriteDeadline(time.Now().Add(time.Minute)))
	_, err := io.Copy(w, strings.NewReader("text"))
	add("Copy", err)
	add("Flush", control.Flush())
	return list
}

// A byteStore counts the bytes that it admits.
type byteStore struct {
	core.Store
	bytes atomic.Int64
}

func (s *byteStore) Take(ctx context.Context, asks []core.Ask) error {
	err := s.Store.Take(ctx, asks)
	for i := range asks {
		if c := &asks[i].Charges[0]; err == nil && asks[i].Decision.Allowed && strings.HasSuffix(c.Rule, ".bytes") {
			s.bytes.Add(c.Cost)
		}
	}
	return err
}
