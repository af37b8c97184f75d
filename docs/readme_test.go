package docs_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/redisstore"
)

func Example_readmeApplication() {
	limiter := limit.New(nil, nil)
	router, server, mux := gin.New(), echo.New(), http.NewServeMux()

	application := limit.Named("application", limit.PerIP(time.Minute, 100))

	router.Use(ginlimit.New(limiter).Limit(application))  // Gin
	server.Use(echolimit.New(limiter).Limit(application)) // Echo
	handler := limiter.Limit(application)(mux)            // net/http, chi and other routers

	router.GET("/", okGin)
	server.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /", ok)
	for _, h := range []http.Handler{router, server, handler} {
		w := send(h, "GET", "/")
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "per-ip-1m";r=99;t=60
	// 200 "per-ip-1m";r=98;t=60
	// 200 "per-ip-1m";r=97;t=60
}

func TestReadmeRedis(t *testing.T) {
	admin := redistest.Real(t)
	addr := admin.Options().Addr
	assert.Equal(t, []int{http.StatusOK, http.StatusTooManyRequests}, onRedis(t, admin, func(watch func(*limit.Limiter)) (codes []int) {
		for range 2 {
			client := redis.NewClient(&redis.Options{Addr: addr})
			defer client.Close()
			limiter := limit.New(redisstore.New(client, nil), &limit.Options{Instances: 3})
			watch(limiter)
			codes = append(codes, send(limiter.Limit(limit.Named("all", limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok)), "GET", "/").Code)
		}
		return codes
	}))
}

// onRedis runs a program on an empty Redis and returns its results, once Redis has decided
// all of its requests: on a busy machine, a call can take longer than the timeout of the
// store, and the process then decides by its share of the limit. The program calls watch with
// each limiter, which connects it.
func onRedis(t *testing.T, admin *redis.Client, program func(watch func(*limit.Limiter)) []int) []int {
	t.Helper()
	byRedis := func(d *limit.Decision) bool { return d.Mode == core.ModeExact || d.Mode == core.ModeRemembered }
	for range 100 {
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		alone := false
		codes := program(func(l *limit.Limiter) {
			first, err := l.Policy(limit.Named("first", limit.PerIP(time.Millisecond, 1)))
			require.NoError(t, err)
			began := time.Now()
			for connected := false; !connected; {
				require.Less(t, time.Since(began), time.Minute, "Redis does not answer in time")
				d, err := first.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.7"}})
				require.NoError(t, err)
				connected = byRedis(&d)
			}
			operate.Observe(l, func(_ *http.Request, d limit.Decision, err error) { alone = alone || err != nil || !byRedis(&d) })
		})
		if !alone {
			return codes
		}
	}
	t.Fatal("no run was decided by Redis alone")
	return nil
}
