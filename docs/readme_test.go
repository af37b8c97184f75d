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

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/redistest"
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
	addr := redistest.Real(t).Options().Addr
	instance := func() http.Handler {
		client := redis.NewClient(&redis.Options{Addr: addr})
		limiter := limit.New(redisstore.New(client, nil), &limit.Options{Instances: 3})
		t.Cleanup(func() { client.Close() })
		mux := http.NewServeMux()
		mux.Handle("GET /", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok)))
		return mux
	}
	assert.Equal(t, http.StatusOK, send(instance(), "GET", "/").Code)
	assert.Equal(t, http.StatusTooManyRequests, send(instance(), "GET", "/").Code)
}
