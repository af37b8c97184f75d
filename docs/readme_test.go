package docs_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

func Example_readmeGin() {
	authenticate := func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }
	show, me := okGin, okGin

	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))

	router.Use(rl.Limit(limit.Named("application", limit.PerIP(time.Minute, 100))))

	reports := router.Group("/reports", rl.Limit(limit.EachRoute(limit.Global(time.Minute, 50))))
	reports.GET("/sales", show)

	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	router.GET("/me", authenticate, rl.Limit(limit.Rules(limit.PerUser(time.Hour, 20))), me)

	for _, path := range []string{"/reports/sales", "/me"} {
		w := send(router, "GET", path)
		fmt.Println(w.Code, w.Header().Values("RateLimit"))
	}
	// Output:
	// 200 ["per-ip-1m";r=99;t=60 "global-1m";r=49;t=60]
	// 200 ["per-ip-1m";r=98;t=60 "per-user-1h";r=19;t=3600]
}

func Example_readmeNetHTTP() {
	limiter, mux, login := limit.New(nil, nil), http.NewServeMux(), http.HandlerFunc(ok)

	mux.Handle("POST /login", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 20)))(login))

	application, err := limiter.Policy(limit.Named("application", limit.PerIP(time.Minute, 100)))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: application.Middleware(mux)}

	fmt.Println(send(server.Handler, "POST", "/login").Header().Values("RateLimit"))
	// Output:
	// ["per-ip-1m";r=99;t=60 "per-ip-1h";r=19;t=3600]
}

func TestReadmeProxies(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{Proxies: limit.Proxies{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")},
	}})
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.5:4567"
	r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9")
	assert.Equal(t, netip.MustParseAddr("203.0.113.9"), limit.Client{Request: r, Limiter: limiter}.IP())
}

func TestReadmeRedis(t *testing.T) {
	addr := redistest.Real(t).Options().Addr
	instance := func() http.Handler {
		client := redis.NewClient(&redis.Options{Addr: addr})
		limiter := limit.New(redisstore.New(client, &redisstore.Options{Prefix: "shop"}), &limit.Options{Instances: 3})
		t.Cleanup(func() { client.Close() })
		mux := http.NewServeMux()
		mux.Handle("GET /", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok)))
		return mux
	}
	assert.Equal(t, http.StatusOK, send(instance(), "GET", "/").Code)
	assert.Equal(t, http.StatusTooManyRequests, send(instance(), "GET", "/").Code)
}
