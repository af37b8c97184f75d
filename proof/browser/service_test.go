package browser

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/livepage"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/stores/redisstore"
)

// A service is a program with limited routes and the live page.
type service struct {
	testing.TB
	*httptest.Server
	limiter *limit.Limiter
	mux     *http.ServeMux
	token   string // of the live page, without Authorize
}

var quiet = slog.New(slog.DiscardHandler)

// serve starts a service in memory, or on Redis with bans and overrides.
func serve(t testing.TB, client *redis.Client, options *livepage.Options) *service {
	t.Helper()
	if options == nil {
		options = &livepage.Options{}
	}
	options.Name = "api-1"
	if options.Authorize == nil {
		options.Token = rand.Text()
	}
	limits := &limit.Options{Log: quiet, Caller: limit.Caller[*http.Request]{User: user}}
	var store core.Store
	if client != nil {
		store = redisstore.New(client, nil)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		documents := control.New(client, &control.Options{Log: quiet})
		options.Bans = access.NewBans(ctx, documents, &access.Options{Log: quiet})
		options.Overrides = overrides.New(ctx, documents, &overrides.Options{Log: quiet})
		limits.Bar, limits.Override = options.Bans.Bar, options.Overrides.Limit
	}
	s := &service{TB: t, limiter: limit.New(store, limits), mux: http.NewServeMux(), token: options.Token}
	s.mux.Handle("/limits/", livepage.Handler(s.limiter, options))
	// A browser may ask for the icon of the program, and report that there is none.
	s.mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.route("POST /login", limit.PerIP(time.Minute, 5), limit.Global(time.Minute, 1000))
	s.route("GET /search", limit.PerUser(time.Minute, 50))
	s.listen("127.0.0.1:0")
	return s
}

func user(r *http.Request) string { return r.Header.Get("X-User") }

func (s *service) route(pattern string, rules ...limit.Rule) {
	s.mux.Handle(pattern, s.limiter.Limit(limit.Rules(rules...))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}

func (s *service) listen(addr string) {
	s.Helper()
	listener := must.Get(net.Listen("tcp", addr))(s)
	s.Server = httptest.NewUnstartedServer(s.mux)
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	s.Cleanup(s.stop)
}

// stop closes the server with its streams.
func (s *service) stop() {
	s.CloseClientConnections()
	s.Close()
}

// send sends requests from an address and a user, and returns how many were admitted.
func (s *service) send(n int, method, path, addr, user string) (admitted int) {
	for range n {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = addr + ":4711"
		r.Header["X-User"] = []string{user}
		w := httptest.NewRecorder()
		s.mux.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			admitted++
		}
	}
	return admitted
}

// page returns the address of the live page, with its token.
func (s *service) page() string {
	if s.token == "" {
		return s.URL + "/limits/"
	}
	return s.URL + "/limits/?token=" + s.token
}

const client = "203.0.113.9"
