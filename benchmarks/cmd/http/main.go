// Command http measures what a request costs with and without limits, beside other
// libraries, and writes the tables of BENCHMARKS.md, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/http
//
// It measures the processor time of one goroutine, and all contenders of a table in turn. For
// a client such as wrk, it serves one of them instead:
//
//	cd benchmarks && go run ./cmd/http -serve 'limit, 2 rules' -addr 127.0.0.1:8080
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/turns"
)

// twoRules admit everything that one goroutine can send. Each address comes again before its
// window has passed: a key that has expired is a new one.
var twoRules = limit.Rules(limit.PerIP(10*time.Millisecond, 20_000), limit.Global(10*time.Millisecond, 20_000))

// refusing admits one request an hour to each address.
var refusing = limit.Rules(limit.PerIP(time.Hour, 1), limit.Global(10*time.Millisecond, 20_000))

// A group is the servers of a table. The first one has no limit.
type group struct {
	name    string
	servers []server
}

func groups() []group {
	return []group{
		{"http.ServeMux", []server{
			{"no limit", netHTTP(limit.RuleSet{})},
			{"a value in the context", muxWith(withValue)},
			{"floor, written by hand", muxWith(byHand(quota{"per-ip-10ms", 20_000, 10 * time.Millisecond}, quota{"global-10ms", 20_000, 10 * time.Millisecond}))},
			{"limit, 2 rules", netHTTP(twoRules)},
			{"floor, written by hand, refused", muxWith(byHand(quota{"per-ip-1h", 1, time.Hour}, quota{"global-10ms", 20_000, 10 * time.Millisecond}))},
			{"limit, 2 rules, refused", netHTTP(refusing)},
			{"limit, 2 rules in 2 sets", twoSets(limit.PerIP(10*time.Millisecond, 20_000))},
			{"limit, 2 rules in 2 sets, refused by the inner one", twoSets(limit.PerIP(time.Hour, 1))},
			{"limit, 2 rules, no headers", muxWith(limit.New(nil, &limit.Options{Headers: limit.NoHeaders}).Limit(twoRules))},
			{"ulule, 2 middlewares", muxWith(ululeHTTP(admits), ululeHTTP(admits))},
			{"ulule, 2 middlewares, refused", muxWith(ululeHTTP(refuses), ululeHTTP(admits))},
			{"httprate, 2 middlewares", muxWith(httprate.LimitBy(20_000, 10*time.Millisecond, byAddress), httprate.LimitBy(20_000, 10*time.Millisecond, httprate.Key("*")))},
			{"httprate, 2 middlewares, refused", muxWith(httprate.LimitBy(1, time.Hour, byAddress), httprate.LimitBy(20_000, 10*time.Millisecond, httprate.Key("*")))},
		}},
		{"Gin", []server{
			{"no limit", ginWith()},
			{"limit, 2 rules", ginWith(ginlimit.New(limit.New(nil, nil)).Limit(twoRules))},
			{"limit, 2 rules, refused", ginWith(ginlimit.New(limit.New(nil, nil)).Limit(refusing))},
			{"ulule, 2 middlewares", ginWith(ululeGin(admits), ululeGin(admits))},
			{"ulule, 2 middlewares, refused", ginWith(ululeGin(refuses), ululeGin(admits))},
		}},
		{"Echo v4", []server{
			{"no limit", echoWith()},
			{"limit, 2 rules", echoWith(echolimit.New(limit.New(nil, nil)).Limit(twoRules))},
			{"limit, 2 rules, refused", echoWith(echolimit.New(limit.New(nil, nil)).Limit(refusing))},
			{"Echo's own, 1 rule", echoWith(middleware.RateLimiter(middleware.NewRateLimiterMemoryStoreWithConfig(
				middleware.RateLimiterMemoryStoreConfig{Rate: rate.Limit(20_000_000), Burst: 20_000})))},
		}},
	}
}

func main() {
	rounds := flag.Int("rounds", 15, "how often each server is measured")
	serve := flag.String("serve", "", "the contender of http.ServeMux to serve, such as 'no limit', at POST /update")
	addr := flag.String("addr", "127.0.0.1:8080", "where to serve")
	flag.Parse()
	gin.SetMode(gin.ReleaseMode)
	for _, g := range groups() {
		if *serve != "" {
			fmt.Fprintln(os.Stderr, "http:", g.serve(*serve, *addr))
			os.Exit(1)
		}
		if err := g.measure(*rounds); err != nil {
			fmt.Fprintln(os.Stderr, "http:", err)
			os.Exit(1)
		}
	}
}

// serve serves a contender, until that fails.
func (g group) serve(name, addr string) error {
	i := slices.IndexFunc(g.servers, func(s server) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("no contender %q: write one of the table, such as %q", name, g.servers[0].name)
	}
	return http.ListenAndServe(addr, g.servers[i].handler)
}

// measure writes the table of a group.
func (g group) measure(rounds int) error {
	serve := make([]func(), len(g.servers))
	for i, s := range g.servers {
		serve[i] = serving(s.handler)
	}
	ns, err := turns.Run(serve, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("| %s | more than the first, ns | allocations |\n|---|---|---|\n", g.name)
	for i, s := range g.servers {
		more := make([]float64, rounds)
		for round := range more {
			more[round] = ns[i][round] - ns[0][round]
		}
		fmt.Printf("| %s | %s | %.0f |\n", s.name, stats.Spread("%.0f", more), testing.AllocsPerRun(1000, serve[i]))
	}
	fmt.Println()
	return nil
}

type server struct {
	name    string
	handler http.Handler
}

func netHTTP(rules limit.RuleSet) http.Handler {
	if len(rules.Rules()) == 0 {
		return muxWith()
	}
	return muxWith(limit.New(nil, nil).Limit(rules))
}

// twoSets has one rule for all requests around one for each address.
func twoSets(inner limit.Rule) http.Handler {
	limiter := limit.New(nil, nil)
	return muxWith(limiter.Limit(limit.Rules(limit.Global(10*time.Millisecond, 20_000))), limiter.Limit(limit.Rules(inner)))
}

// muxWith puts middlewares around a handler, the first outermost.
func muxWith(middlewares ...func(http.Handler) http.Handler) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, m := range slices.Backward(middlewares) {
		h = m(h)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /update", h)
	return mux
}

// withValue is the least that middleware pays to leave something for a handler.
func withValue(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), valueKey{}, w)))
	})
}

type valueKey struct{}

func ginWith(handlers ...gin.HandlerFunc) http.Handler {
	engine := gin.New()
	engine.POST("/update", append(handlers, func(c *gin.Context) { c.Status(http.StatusNoContent) })...)
	return engine
}

func echoWith(middlewares ...echo.MiddlewareFunc) http.Handler {
	server := echo.New()
	server.POST("/update", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, middlewares...)
	return server
}

// byAddress is a key of httprate, which leaves the choice of an address to the program.
func byAddress(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

// The rates of ulule's middlewares, which both count by address.
var (
	admits  = limiter.Rate{Limit: 20_000, Period: 10 * time.Millisecond}
	refuses = limiter.Rate{Limit: 1, Period: time.Hour}
)

func ululeGin(rate limiter.Rate) gin.HandlerFunc {
	return ululegin.NewMiddleware(limiter.New(ululemem.NewStore(), rate))
}

func ululeHTTP(rate limiter.Rate) func(http.Handler) http.Handler {
	return stdlib.NewMiddleware(limiter.New(ululemem.NewStore(), rate)).Handler
}

// serving returns a function that sends a request from one of 1,000 addresses in turn, to a
// writer that discards the response.
func serving(handler http.Handler) func() {
	all := requests(1000)
	w := make(adapter.HeaderWriter)
	for _, r := range all { // uses up the quotas
		handler.ServeHTTP(w, r)
	}
	i := 0
	return func() {
		clear(w)
		handler.ServeHTTP(w, all[i])
		if i++; i == len(all) {
			i = 0
		}
	}
}

// requests returns one request from each of n addresses.
func requests(n int) []*http.Request {
	list := make([]*http.Request, n)
	for i, address := range stats.Addresses(n) {
		list[i] = &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/update"}, RequestURI: "/update",
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "example.com", Header: http.Header{},
			Body: http.NoBody, RemoteAddr: address + ":49152"}
	}
	return list
}
