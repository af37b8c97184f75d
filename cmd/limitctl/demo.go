package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/livepage"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/throttle"
)

func newDemoCommand() *cobra.Command {
	var addr, redisURL string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Serve limited routes on Gin, Echo and net/http until interrupted",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), addr, redisURL)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	cmd.Flags().StringVar(&redisURL, "redis", "", "`URL` of the Redis that keeps the quotas, such as redis://127.0.0.1:6379/0; empty keeps them in memory")
	return cmd
}

func runDemo(ctx context.Context, out io.Writer, addr, redisURL string) error {
	shared, place, err := connect(ctx, redisURL)
	if err != nil {
		return err
	}
	if shared != nil {
		defer shared.Close()
	}
	listener, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another demo: use a free port with --addr 127.0.0.1:0 (make demo ADDR=127.0.0.1:0)", addr)
	}
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	token := rand.Text()
	var text bytes.Buffer // written at once, so that whoever sees the address sees all of it
	fmt.Fprintf(&text, "Serving on %[1]s, with the quotas %[2]s, until interrupted.\n\nIn a browser: %[1]s/?token=%[3]s\n"+
		"Live page: %[1]s/limits/?token=%[3]s\n", base, place, token)
	if err := textTemplate.ExecuteTemplate(&text, "try", base); err != nil {
		return err
	}
	if _, err := text.WriteTo(out); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           newDemo(ctx, shared, place, token),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	fmt.Fprintln(out, "Stopped.")
	return nil
}

// connect returns a client of the Redis of a URL, or nil without one, and a phrase that
// says where the quotas are.
func connect(ctx context.Context, redisURL string) (client *redis.Client, place string, err error) {
	if redisURL == "" {
		return nil, "in memory", nil
	}
	options, err := (&redisclient.Address{URL: redisURL}).Server(ctx) // it silences go-redis: package guard logs errors
	if err != nil {
		return nil, "", usageError{err}
	}
	client = redis.NewClient(options)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, "", err
	}
	return client, "in Redis at " + options.Addr, nil
}

// The rules of the demo. Each route of the three frameworks has its own quotas.
var (
	updateRules = limit.Rules(
		limit.PerIP(2*time.Second, 5),
		limit.Global(time.Minute, 1000),
	)
	testRules = limit.Rules(
		limit.PerUser(10*time.Second, 2),
		limit.Global(10*time.Second, 50),
		limit.Global(time.Minute, 100),
	)
)

// downloadRules limit the bytes of a user's downloads, over all connections.
var downloadRules = limit.MustParse("100k/1s per user token-bucket burst 50k")

// The algorithms of the demo, on one route each.
var algorithms = []struct {
	name  string
	rules limit.RuleSet
}{
	{"sliding-log", limit.MustParse("5/10s per ip sliding-log")},
	{"fixed-window", limit.MustParse("5/10s per ip fixed-window aligned")},
	{"calendar", limit.MustParse("100/day per ip zone UTC")},
	{"sliding-cells", limit.MustParse("5/10s per ip sliding-cells cells 10")},
	{"sliding-counter", limit.MustParse("5/10s per ip sliding-counter")},
	{"token-bucket", limit.MustParse("10/10s per ip token-bucket burst 5")},
	{"leaky-bucket", limit.MustParse("10/10s per ip leaky-bucket burst 5")},
	{"queue", limit.MustParse("10/10s per ip queue burst 4 wait 5s")},
	{"concurrency", limit.MustParse("2/30s per ip concurrency")},
}

// newDemo returns the routes of the three frameworks, the page that lists them and the live page,
// which the token opens. Without a client of Redis, the quotas are in memory, and the live page
// can neither ban nor override. Place says where the quotas are.
func newDemo(ctx context.Context, shared *redis.Client, place, token string) http.Handler {
	// A real program takes the user from its authentication.
	user := func(r *http.Request) string { return r.Header.Get("X-User") }
	options := &limit.Options{Caller: limit.Caller[*http.Request]{User: user}}
	live := &livepage.Options{Name: "demo", Token: token}
	var store core.Store
	if shared != nil {
		store = redisstore.New(shared, nil)
		documents := control.New(shared, nil)
		live.Bans = access.NewBans(ctx, documents, nil)
		live.Overrides = overrides.New(ctx, documents, nil)
		options.Bar, options.Override = live.Bans.Bar, live.Overrides.Limit
	}
	limiter := limit.New(store, options)
	mux := http.NewServeMux()
	mux.Handle("/gin/", ginRoutes(limiter))
	mux.Handle("/echo/", echoRoutes(limiter))
	mux.Handle("/http/", httpRoutes(limiter))
	mux.Handle("/algorithms/", algorithmRoutes(limiter))
	mux.Handle("/limits/", livepage.Handler(limiter, live))
	mux.Handle("GET /{$}", page(place))
	return mux
}

func ginRoutes(limiter *limit.Limiter) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	rl := ginlimit.New(limiter)
	ok := func(c *gin.Context) { c.Data(http.StatusOK, "application/json", answer("gin")) }
	router.POST("/gin/update", rl.Limit(updateRules), ok)
	router.GET("/gin/test", rl.Limit(testRules), ok)
	return router
}

func echoRoutes(limiter *limit.Limiter) http.Handler {
	e := echo.New()
	rl := echolimit.New(limiter)
	ok := func(c echo.Context) error { return c.JSONBlob(http.StatusOK, answer("echo")) }
	e.POST("/echo/update", ok, rl.Limit(updateRules))
	e.GET("/echo/test", ok, rl.Limit(testRules))
	return e
}

func httpRoutes(limiter *limit.Limiter) http.Handler {
	mux := http.NewServeMux()
	ok := http.HandlerFunc(serveAnswer)
	mux.Handle("POST /http/update", limiter.Limit(updateRules)(ok))
	mux.Handle("GET /http/test", limiter.Limit(testRules)(ok))
	mux.Handle("GET /http/download", throttle.Limit(limiter, downloadRules, nil)(http.HandlerFunc(download)))
	return mux
}

func algorithmRoutes(limiter *limit.Limiter) http.Handler {
	mux := http.NewServeMux()
	for _, a := range algorithms {
		mux.Handle("GET /algorithms/"+a.name, limiter.Limit(a.rules)(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if a.name == "concurrency" { // so that requests overlap
					select {
					case <-time.After(time.Second):
					case <-r.Context().Done():
					}
				}
				serveAnswer(w, r)
			})))
	}
	return mux
}

func answer(framework string) []byte {
	return []byte(`{"ok":true,"framework":"` + framework + `"}` + "\n")
}

func serveAnswer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(answer("net/http"))
}

func download(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 1_000_000)))
}
