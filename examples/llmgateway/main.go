// Command llmgateway is a streaming proxy for the chat completions of OpenAI and the messages
// of Anthropic. It limits each API key by requests, tokens, streams in flight and money, in one
// decision: a request reserves the most that it can use, and its reply settles what it has used.
// The upstream checks the keys. docs/model-gateways.md has more.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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
	longest = 15 * time.Minute // from a request to the end of its reply
	grace   = 30 * time.Second // how long a shutdown waits for replies in flight
)

// limits are those of each API key, with the names that headers and query.costs use. They are
// examples: write your own. The budget is in micro-dollars.
var limits = limit.MustParse(`
	requests: 60/1m per user
	input-tokens: 400k/1m per user token-bucket
	output-tokens: 40k/1m per user token-bucket
	streams: 10/10s per user concurrency
	budget: 50M/month per user zone UTC`).Named("model")

type gateway struct {
	*http.ServeMux
	upstream  *url.URL
	transport *http.Transport
	drain     time.Duration   // how long a reply is read after its client has left
	cut       context.Context // ends when a shutdown no longer waits for replies
	stop      context.CancelFunc
}

// newGateway returns a gateway that keeps its quotas in store. Each API has its own header style.
func newGateway(to *url.URL, store core.Store, rules limit.RuleSet, drain time.Duration) *gateway {
	g := &gateway{ServeMux: http.NewServeMux(), upstream: to, drain: drain,
		transport: http.DefaultTransport.(*http.Transport).Clone()}
	g.transport.DisableCompression = true
	g.cut, g.stop = context.WithCancel(context.Background())
	for _, a := range []*api{openAI, anthropic} {
		policy, err := limit.New(store, &limit.Options{Headers: a.style,
			Refuse: func(w http.ResponseWriter, _ *http.Request, d limit.Decision) {
				a.fail(w, http.StatusTooManyRequests, (&limit.RefusedError{Decision: d}).Error())
			}}).Policy(rules)
		must(err)
		g.HandleFunc("POST "+a.path, func(w http.ResponseWriter, r *http.Request) {
			g.serve(w, r, a, policy)
		})
	}
	return g
}

// serve reads a request and forwards it if the rules admit the most that it can use.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, a *api, policy *limit.Policy) {
	field := a.keyField
	if r.Header[field] == nil {
		field = "Authorization"
	}
	key := keyForm.FindStringSubmatch(field + ": " + strings.Join(r.Header[field], ", "))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	q, problem := a.parse(body)
	switch {
	case key == nil:
		a.fail(w, http.StatusUnauthorized, "send an API key")
	case err != nil:
		a.fail(w, http.StatusRequestEntityTooLarge, "the body is longer than 1 MiB, or ends early")
	case problem != nil:
		a.fail(w, http.StatusBadRequest, problem.Error())
	default:
		must(policy.Serve(w, r, limit.Request{
			Keys:  map[string]string{"user": fmt.Sprintf("%x", sha256.Sum256([]byte(key[1])))},
			Costs: q.costs(q.most),
			Hold:  time.Minute, // after which the rules get back what a gateway that dies reserved
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.forward(w, r, q, field) })))
	}
}

// forward sends an admitted request to the upstream, passes the reply on, and settles what was
// used. It waits for the end of the reply even if the client has left.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request, q *query, keyField string) {
	ctx, cancel := context.WithTimeout(g.cut, longest)
	defer cancel()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(g.drain, cancel) })()
	// The request is settled at what Use notes, when this returns or panics.
	defer func() { _ = limit.DecisionFrom(r.Context()).Use(r.Context(), q.costs(q.used)) }()
	to := g.upstream.JoinPath(q.path).String()
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(q.body))
	must(err)
	// Other fields, such as Anthropic-Beta, can change what a request costs.
	for _, field := range []string{keyField, "Content-Type", "User-Agent", "Anthropic-Version",
		"Openai-Organization", "Openai-Project"} {
		out.Header[field] = r.Header[field]
	}
	reply, err := g.transport.RoundTrip(out)
	if err != nil {
		if ctx.Err() == nil { // otherwise it is unknown what the upstream has done
			q.used = usage{}
		}
		q.fail(w, http.StatusBadGateway, "the upstream does not answer")
		return
	}
	defer reply.Body.Close()
	maps.DeleteFunc(reply.Header, func(field string, _ []string) bool {
		return strings.Contains(field, "Ratelimit") || field == "Connection"
	})
	maps.Copy(w.Header(), reply.Header)
	w.WriteHeader(reply.StatusCode)
	err = q.pass(w, reply.Body)
	if reply.StatusCode/100 != 2 {
		q.used = usage{}
	}
	if err != io.EOF {
		panic(http.ErrAbortHandler) // or the client would take a part for the whole
	}
}

// run serves until ctx ends, and then waits for the replies in flight to end and settle. After
// the grace period it cuts them.
func (g *gateway) run(ctx context.Context, listener net.Listener) error {
	// ReadTimeout ends a request even after its body.
	server := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: longest, WriteTimeout: longest}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, g.stop)
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
	redisAddr := flag.String("redis", "", "address of Redis; without it, a restart forgets the quotas")
	drain := flag.Duration("drain", time.Minute, "how long a reply is read after its client has left")
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
	must(newGateway(target, store, limits, *drain).run(ctx, listener))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
