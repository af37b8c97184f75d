package main

import (
	"bytes"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
)

// The rules of the demo. They stand on the routes of three frameworks, and
// have quotas of their own on each.
var (
	updateRules = limit.Rules(
		limit.PerIP(2*time.Second, 5),
		limit.Global(time.Minute, 1000),
	)
	testRules = limit.Rules(
		limit.PerUser(time.Second, 2),
		limit.Global(10*time.Second, 50),
		limit.Global(time.Minute, 100),
	)
)

// downloadRules count bytes: those of each user's downloads, over all of their
// connections.
var downloadRules = limit.MustParse("100k/1s per user token-bucket burst 50k")

// The algorithms of the demo, each of which stands alone on a route.
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

// newDemo returns the routes of the three frameworks and the page that lists
// them. The place says where store keeps the quotas.
func newDemo(store limit.Store, place string) http.Handler {
	limiter := limit.New(store, &limit.Options{
		// A demo: whoever says to be alice is alice. A program takes the user
		// from what its authentication has found.
		User: func(r *http.Request) string { return r.Header.Get("X-User") },
	})
	mux := http.NewServeMux()
	mux.Handle("/gin/", ginRoutes(limiter))
	mux.Handle("/echo/", echoRoutes(limiter))
	mux.Handle("/http/", httpRoutes(limiter))
	mux.Handle("/algorithms/", algorithmRoutes(limiter))
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
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer("net/http"))
	})

	mux.Handle("POST /http/update", limiter.Handler(updateRules, ok))
	mux.Handle("GET /http/test", limiter.Handler(testRules, ok))
	mux.Handle("GET /http/download", limiter.Throttle(downloadRules, http.HandlerFunc(download), nil))
	return mux
}

func algorithmRoutes(limiter *limit.Limiter) http.Handler {
	mux := http.NewServeMux()
	for _, a := range algorithms {
		mux.Handle("GET /algorithms/"+a.name, limiter.Handler(a.rules, http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if a.name == "concurrency" { // or no two would ever be under way
					select {
					case <-time.After(time.Second):
					case <-r.Context().Done():
					}
				}
				w.Header().Set("Content-Type", "application/json")
				w.Write(answer("net/http"))
			})))
	}
	return mux
}

// answer returns the answer to an admitted request.
func answer(framework string) []byte {
	return []byte(`{"ok":true,"framework":"` + framework + `"}` + "\n")
}

// download answers with a megabyte.
func download(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 1_000_000)))
}
