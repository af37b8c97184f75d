// Command operations is a service with everything that its operators use: quotas, bans and
// overrides in Redis, the live page and metrics on a port of their own, and decisions that
// "limitctl watch" prints. docs/operating.md, docs/live-page.md and docs/dashboards.md
// explain the parts.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/feed"
	"github.com/routelimit/limit/ops/livepage"
	"github.com/routelimit/limit/ops/metrics/promlimit"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/stores/redisstore"
)

// prefix begins the names of all keys in Redis: limitctl needs it too.
const prefix = "shop"

// serve returns the handlers of the service and of its operators. They use the client
// until ctx ends. The token opens the live page.
func serve(ctx context.Context, client *redis.Client, token string) (service, operators http.Handler) {
	documents := control.New(client, &control.Options{Prefix: prefix})
	bans := access.NewBans(ctx, documents, nil)
	more := overrides.New(ctx, documents, nil)
	metrics := prometheus.NewRegistry()
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Prefix: prefix}), &limit.Options{
		Instances: 1, // processes that share this Redis
		Bar:       bans.Bar,
		Override:  more.Limit,
		Observe:   promlimit.Observe(metrics),
	})
	promlimit.Watch(metrics, limiter)
	context.AfterFunc(ctx, feed.Publish(limiter, client, &feed.Options{Prefix: prefix}))

	login := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "wrong password", http.StatusUnauthorized) }
	items := func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("item " + r.PathValue("id") + "\n")) }
	routes := http.NewServeMux()
	routes.Handle("POST /login", limiter.Limit(limit.MustParse("5/1m per ip; 20/1h per ip"))(http.HandlerFunc(login)))
	routes.Handle("GET /items/{id}", limiter.Limit(limit.MustParse("60/1m per ip"))(http.HandlerFunc(items)))

	admin := http.NewServeMux()
	admin.Handle("/limits/", livepage.Handler(limiter, &livepage.Options{Token: token, Bans: bans, Overrides: more}))
	admin.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return routes, admin
}

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer client.Close()

	token := rand.Text()
	log.Print("live page: http://localhost:9090/limits/?token=" + token)
	service, operators := serve(ctx, client, token)
	for addr, handler := range map[string]http.Handler{"127.0.0.1:8080": service, "127.0.0.1:9090": operators} {
		server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		context.AfterFunc(ctx, func() { server.Shutdown(context.Background()) })
		go func() {
			if err := server.ListenAndServe(); err != http.ErrServerClosed {
				log.Print(err)
				stop()
			}
		}()
	}
	<-ctx.Done()
}
