// Command example serves a limited route, and its metrics to Prometheus.
package main

import (
	"io"
	"log"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/metrics/promlimit"
)

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", newHandler()))
}

func newHandler() http.Handler {
	count := promlimit.Observe(prometheus.DefaultRegisterer)
	limiter := limit.New(nil, &limit.Options{Observe: count})
	promlimit.Watch(prometheus.DefaultRegisterer, limiter)

	mux := http.NewServeMux()
	items := limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 5)))
	mux.Handle("GET /items", items(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "items\n")
	})))
	mux.Handle("GET /metrics", promhttp.Handler()) // on a port of its own, if clients reach this one
	return mux
}
