package docs_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

func Example_howDoIOptions() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == "retry_after" {
			return slog.Attr{}
		}
		return a
	}}))

	limiter := limit.New(nil, &limit.Options{
		// skip some requests; for a list, write "exempt ip 10.0.0.0/8" in a rule
		Exempt: func(c limit.Client) bool { return c.Request.URL.Path == "/healthz" },

		// find the client behind a proxy
		Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}},

		// answer with a text of your own; one that begins with { is JSON
		Refuse: func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) { fmt.Fprintln(w, "too many requests") },

		// log refusals
		Observe: func(r *http.Request, d limit.Decision, err error) {
			if err == nil && !d.Allowed && r != nil {
				logger.Info("refused", "path", r.URL.Path, "decision", d)
			}
		},
	})

	application, err := limiter.Policy(limit.Named("application", limit.PerIP(time.Minute, 1)))
	if err != nil {
		log.Fatal(err)
	}
	server := application.Handler(http.HandlerFunc(ok))
	for _, request := range [][2]string{{"/items", "198.51.100.7"}, {"/items", "198.51.100.8"}, {"/healthz", "198.51.100.7"}, {"/items", "198.51.100.7"}} {
		r := httptest.NewRequest("GET", request[0], nil)
		r.RemoteAddr = "10.0.0.5:1234"
		r.Header.Set("X-Forwarded-For", request[1])
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Print(request[0], " ", request[1], " ", w.Code, " ", w.Body)
	}
	// Output:
	// /items 198.51.100.7 200 ok
	// /items 198.51.100.8 200 ok
	// /healthz 198.51.100.7 200 ok
	// msg=refused path=/items decision.policy=application decision.allowed=false decision.mode=exact decision.refusing=[per-ip-1m]
	// /items 198.51.100.7 429 too many requests
}

func Example_howDoIRules() {
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{
		User: func(r *http.Request) string { return r.Header.Get("X-User") },
		Plan: func(r *http.Request) string { return r.Header.Get("X-Plan") },
	}})

	byKey := limit.Per(limit.ByHeader("X-API-Key").Or(limit.ByIP), time.Minute, 2)

	byPlan := limit.MustParse("1/1h per user plan pro 2")

	failed := limit.Rule{Key: limit.ByIP, Limit: 2, Window: time.Hour, Settle: rules.OnStatus(http.StatusUnauthorized)}

	fullHour := limit.Rule{Key: limit.ByIP, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{Aligned: true}}

	unauthorized := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("GET /key", limiter.Limit(limit.Rules(byKey, fullHour))(http.HandlerFunc(ok)))
	mux.Handle("GET /plan", limiter.Limit(byPlan)(http.HandlerFunc(ok)))
	mux.Handle("GET /login", limiter.Limit(limit.Rules(failed))(unauthorized))
	for _, request := range [][]string{{"/key", "X-API-Key", "a"}, {"/plan", "X-User", "alice"}, {"/plan", "X-User", "bob", "X-Plan", "pro"},
		{"/login", "Password", "right"}, {"/login", "Password", "wrong"}} {
		fmt.Print(request)
		for range 3 {
			fmt.Print(" ", send(mux, "GET", request[0], request[1:]...).Code)
		}
		fmt.Println()
	}
	// Output:
	// [/key X-API-Key a] 200 200 429
	// [/plan X-User alice] 200 429 429
	// [/plan X-User bob X-Plan pro] 200 200 429
	// [/login Password right] 200 200 200
	// [/login Password wrong] 401 401 429
}

func Example_howDoIOperators() {
	ctx := context.Background()
	limiter := limit.New(nil, nil)
	login, err := limiter.Policy(limit.Named("login", limit.PerIP(time.Hour, 5)))
	if err != nil {
		log.Fatal(err)
	}
	keys := map[string]string{"ip": "203.0.113.9"}
	if _, err := login.Take(ctx, limit.Request{Keys: keys, Cost: 5}); err != nil {
		log.Fatal(err)
	}

	d, err := login.Peek(ctx, limit.Request{Keys: keys}) // charges nothing
	if err != nil {
		log.Fatal(err)
	}
	for rule := range d.Rules() {
		fmt.Println(rule.Name, rule.Remaining, "of", rule.Capacity)
	}
	if err := login.Reset(ctx, keys); err != nil { // the client has a full quota again
		log.Fatal(err)
	}

	d, _ = login.Peek(ctx, limit.Request{Keys: keys})
	fmt.Println(d.Allowed)
	// Output:
	// per-ip-1h 0 of 5
	// true
}

// TestHowDoIShare has two processes share a quota.
func TestHowDoIShare(t *testing.T) {
	addr := redistest.Launch(t).Addr
	var codes []int
	for range 2 {
		client := redis.NewClient(&redis.Options{Addr: addr})
		store := redisstore.New(client, &redisstore.Options{Timeout: time.Minute}) // the machine may be busy
		limiter := limit.New(store, &limit.Options{Instances: 2})
		t.Cleanup(func() { client.Close() })
		codes = append(codes, send(limiter.Limit(limit.Named("all", limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok)), "GET", "/").Code)
	}
	assert.Equal(t, []int{200, 429}, codes)
}

func TestHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := limit.New(nil, nil).Limit(limit.Named("all", limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok))
		for _, want := range []int{200, 429} {
			assert.Equal(t, want, send(server, "GET", "/").Code)
		}
		time.Sleep(time.Hour) // takes no time
		assert.Equal(t, 200, send(server, "GET", "/").Code)
	})
}
