// Command llmgateway is a streaming proxy for the chat completions of OpenAI and the messages
// of Anthropic. It limits each API key by requests, tokens, streams in flight and money, in one
// decision: a request reserves the most that it can use, and its reply settles what it has used.
// The upstream checks the keys. docs/model-gateways.md has more.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

const (
	maxBody = 1 << 20          // bytes of a request
	longest = 15 * time.Minute // from a request to the end of its reply
)

// limits are those of each API key.
type limits struct{ requests, input, output, streams, budget int64 }

// rules returns the rules, with the names that headers and query.costs use.
func (l limits) rules() limit.RuleSet {
	month := limit.FixedWindow{Calendar: core.Calendar{Unit: core.Month, Zone: time.UTC}}
	return limit.Named("model",
		limit.Rule{Name: "requests", Key: limit.ByUser, Limit: l.requests, Window: time.Minute},
		limit.Rule{Name: "input-tokens", Key: limit.ByUser, Limit: l.input, Window: time.Minute, Algorithm: limit.TokenBucket{}},
		limit.Rule{Name: "output-tokens", Key: limit.ByUser, Limit: l.output, Window: time.Minute, Algorithm: limit.TokenBucket{}},
		limit.Rule{Name: "streams", Key: limit.ByUser, Limit: l.streams, Window: 10 * time.Second, Algorithm: limit.Concurrency{}},
		limit.Rule{Name: "budget", Key: limit.ByUser, Limit: l.budget, Algorithm: month})
}

type gateway struct {
	*http.ServeMux
	upstream  *url.URL
	transport *http.Transport
	output    int64           // the most tokens of a reply
	drain     time.Duration   // how long to read a reply whose client has left
	cut       context.Context // ends when a shutdown no longer waits for replies
	stop      context.CancelFunc
}

// newGateway returns a gateway with the quotas of a store. Each API has its style of headers and
// refusals.
func newGateway(upstream *url.URL, store core.Store, l limits, drain time.Duration) *gateway {
	g := &gateway{ServeMux: http.NewServeMux(), upstream: upstream, output: l.output, drain: drain,
		transport: http.DefaultTransport.(*http.Transport).Clone()}
	g.transport.DisableCompression = true
	g.cut, g.stop = context.WithCancel(context.Background())
	for _, a := range []*api{openAI, anthropic} {
		policy, err := limit.New(store, &limit.Options{Headers: a.style,
			Refuse: func(w http.ResponseWriter, _ *http.Request, d limit.Decision) {
				a.fail(w, http.StatusTooManyRequests, (&limit.RefusedError{Decision: d}).Error())
			},
			Fail: func(w http.ResponseWriter, _ *http.Request, _ error) {
				a.fail(w, http.StatusServiceUnavailable, "the limits are unavailable")
			},
		}).Policy(l.rules())
		must(err)
		g.HandleFunc("POST "+a.path, func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, a, policy) })
	}
	return g
}

// serve reads a request and forwards it if the rules admit the most that it can use.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, a *api, policy *limit.Policy) {
	key := a.key(r.Header)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	q, problem := a.parse(body, g.output)
	switch {
	case key == "":
		a.fail(w, http.StatusUnauthorized, "send an API key")
	case err != nil:
		a.fail(w, http.StatusRequestEntityTooLarge, "the body is longer than 1 MiB, or ends early")
	case problem != nil:
		a.fail(w, http.StatusBadRequest, problem.Error())
	default:
		hash := sha256.Sum256([]byte(key)) // the store needs no secrets
		given := limit.Request{Keys: map[string]string{"user": hex.EncodeToString(hash[:16])}, Costs: q.costs(q.most),
			Hold: time.Minute} // after which the rules get back what a gateway that dies has reserved
		next := func(w http.ResponseWriter, r *http.Request) { g.forward(w, r, q) }
		if err := policy.Serve(w, r, given, http.HandlerFunc(next)); err != nil {
			panic(err) // costs and rules have different names
		}
	}
}

// forward sends an admitted request to the upstream and passes the reply on. It returns when the
// reply has ended, even if the client has left, and settles what was used.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request, q *query) {
	m := &meter{query: q}
	defer func() { // the proxy panics if the client has left
		if err := limit.DecisionFrom(r.Context()).SettleCosts(r.Context(), q.costs(m.used())); err != nil {
			log.Print("a request stays charged in full: ", err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), longest)
	defer cancel()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(g.drain, cancel) })()
	defer context.AfterFunc(g.cut, cancel)()

	proxy := httputil.ReverseProxy{
		Transport:     g.transport,
		FlushInterval: -1, // each chunk at once
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(g.upstream)
			p.Out.Body, p.Out.ContentLength = io.NopCloser(bytes.NewReader(q.body)), int64(len(q.body))
			for _, name := range []string{"Accept-Encoding", "Connection", "Upgrade", // the meter reads plain replies
				"Content-Encoding", "Anthropic-Beta"} { // which can change what a request costs
				p.Out.Header.Del(name)
			}
			p.Out.Header.Set("Content-Type", "application/json")
		},
		ModifyResponse: func(reply *http.Response) error {
			// Retry-After passes, since it is about this reply.
			maps.DeleteFunc(reply.Header, func(name string, _ []string) bool { return strings.Contains(name, "Ratelimit") })
			if m.stream = strings.HasPrefix(reply.Header.Get("Content-Type"), "text/event-stream"); reply.StatusCode/100 == 2 {
				m.ReadCloser, reply.Body = reply.Body, m
			} else {
				q.most = usage{}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if ctx.Err() == nil { // otherwise it is unknown what the upstream has done
				q.most = usage{}
			}
			q.api.fail(w, http.StatusBadGateway, "the upstream does not answer")
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// run serves until ctx ends, and then waits for the replies in flight to end and settle. After
// the grace period it cuts them.
func (g *gateway) run(ctx context.Context, listener net.Listener, grace time.Duration) error {
	// ReadTimeout ends a request even after its body.
	server := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: longest, WriteTimeout: longest}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		defer time.AfterFunc(grace, g.stop).Stop()
		wait, cancel := context.WithTimeout(context.Background(), grace+10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(wait)
	})
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	upstream := flag.String("upstream", "https://api.openai.com", "URL of the upstream, before /v1")
	redisAddr := flag.String("redis", "", "address of Redis; without it the quotas are in memory, and a restart forgets them")
	drain := flag.Duration("drain", time.Minute, "how long to read a reply whose client has left, for its true usage; then, or at\n"+
		"once with 0, a stream is cut, and charged a token of output for every four bytes of its deltas")
	grace := flag.Duration("grace", 30*time.Second, "how long a shutdown waits for replies in flight")
	var l limits
	flag.Int64Var(&l.requests, "requests", 60, "requests a minute")
	flag.Int64Var(&l.input, "input", 400_000, "input tokens a minute; a request reserves one for each byte, and 1,000 more")
	flag.Int64Var(&l.output, "output", 40_000, "output tokens a minute")
	flag.Int64Var(&l.streams, "streams", 10, "requests in flight")
	flag.Int64Var(&l.budget, "budget", 50_000_000, "micro-dollars a month, in UTC")
	flag.Parse()
	var store core.Store = memstore.New(nil)
	if *redisAddr != "" {
		client := redis.NewClient(&redis.Options{Addr: *redisAddr, ContextTimeoutEnabled: true})
		store = redisstore.New(client, &redisstore.Options{Prefix: "llmgateway"})
	}
	target, err := url.ParseRequestURI(*upstream)
	must(err)
	listener, err := net.Listen("tcp", *addr)
	must(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	must(newGateway(target, store, l, *drain).run(ctx, listener, *grace))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
