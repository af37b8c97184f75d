package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

func Example_migratingStores() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	limiters := []*limit.Limiter{
		limit.New(nil, nil),
		limit.New(redisstore.New(client, nil), nil),
	}
	fmt.Println(len(limiters))
	// Output: 2
}

// From ulule/limiter and from gin-rate-limit.
func Example_migratingGin() {
	router, rl := gin.New(), ginlimit.New(limit.New(nil, nil))
	router.GET("/health", okGin)
	router.Use(rl.Limit(limit.Named("clients", limit.PerIP(time.Second, 5))))
	router.GET("/items", okGin)
	router.GET("/users", okGin)
	for range 5 {
		fmt.Print(send(router, "GET", "/items").Code, " ")
	}
	fmt.Println(send(router, "GET", "/users").Code, send(router, "GET", "/health").Code)
	// Output: 200 200 200 200 200 429 200
}

// From the text of ulule/limiter.
func Example_migratingText() {
	set := limit.Named("clients", limit.MustParse("100/1m per ip").Rules()...)
	router, rl := gin.New(), ginlimit.New(limit.New(nil, nil))
	router.Use(rl.Limit(set))
	router.GET("/items", okGin)
	router.GET("/users", okGin)
	for range 100 {
		send(router, "GET", "/items")
	}
	fmt.Println(send(router, "GET", "/users").Code)
	// Output: 429
}

// A chain is the part of chi's router that the program needs.
type chain struct{ http.Handler }

func (c *chain) Use(middleware func(http.Handler) http.Handler) { c.Handler = middleware(c.Handler) }

// From httprate and from tollbooth.
func Example_migratingNetHTTP() {
	limiter := limit.New(nil, nil)
	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerIP(time.Second, 1)))(http.HandlerFunc(ok)))
	r := chain{mux}
	r.Use(limiter.Limit(limit.Named("clients", limit.PerIP(time.Minute, 100))))
	server := r.Handler
	fmt.Println(send(server, "GET", "/items").Code, send(server, "GET", "/items").Code)
	// Output: 200 429
}

func Example_migratingRedisRate() {
	ctx := context.Background()
	limiter := limit.New(nil, nil)
	rule := limit.Rule{Key: limit.ByUser, Limit: 10, Window: time.Second, Algorithm: limit.LeakyBucket{Burst: 10}}
	calls, err := limiter.Policy(limit.Named("calls", rule))
	if err != nil {
		panic(err)
	}
	alice := map[string]string{"user": "alice"}
	one, _ := calls.Take(ctx, limit.Request{Keys: alice})
	three, _ := calls.Take(ctx, limit.Request{Keys: alice, Cost: 3})
	some, _ := calls.Take(ctx, limit.Request{Keys: alice, Cost: 3, UpTo: true})
	fmt.Println(one.Allowed, three.Allowed, some.Taken, calls.Reset(ctx, alice))
	// Output: true true 3 <nil>
}

func Example_migratingEcho() {
	server, el := echo.New(), echolimit.New(limit.New(nil, nil))
	server.Use(el.Limit(limit.Named("server", limit.PerIP(time.Second, 20))))
	server.GET("/items", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	fmt.Println(send(server, "GET", "/items").Code)
	// Output: 200
}

func Example_migratingXTime() {
	limiter := limit.New(nil, nil)
	mails, err := limiter.Policy(limit.Named("mails",
		limit.Rule{Key: limit.Everyone, Limit: 10, Window: time.Second, Algorithm: limit.TokenBucket{Burst: 20}}))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	_, err = mails.Wait(ctx, limit.Request{})
	fmt.Println(err)
	// Output: <nil>
}

// The options of ulule/limiter, httprate, express-rate-limit and bucket4j.
func Example_migratingOptions() {
	ctx := context.Background()
	tenant := func(r *http.Request) string { return r.Header.Get("X-Tenant") }
	pages := func(*http.Request) int64 { return 5 }
	internal := func(c limit.Client) bool { return c.Request.Header.Get("X-Internal") != "" }
	answer := func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) { fmt.Fprint(w, "too many") }
	served := func(_ *http.Request, status int) int64 {
		if status < 400 {
			return 1
		}
		return 0
	}
	for _, options := range []*limit.Options{
		{Refuse: answer},
		{Exempt: internal},
		{Headers: limit.XRateLimitUnix},
		{Proxies: limit.Proxies{Hops: 1}},
		{Proxies: limit.Proxies{IPv6Prefix: 56}},
	} {
		limit.New(nil, options)
	}
	limiter := limit.New(nil, nil)
	rl := ginlimit.New(limiter)
	rl.Refuse = func(c *gin.Context, _ limit.Decision) { c.String(http.StatusTooManyRequests, "too many") }
	for i, rule := range []limit.Rule{
		limit.PerIP(time.Minute, 100),
		limit.Per(limit.By("tenant", tenant), time.Minute, 100),
		{Key: limit.ByIP, Limit: 100, Window: time.Minute, Cost: rules.CostBy("pages", pages)},
		{Key: limit.ByIP, Limit: 100, Window: time.Minute, OnStoreError: limit.Allow},
		{Key: limit.ByIP, Limit: 5, Window: time.Hour, Settle: rules.OnStatus(http.StatusUnauthorized)},
		{Key: limit.ByIP, Limit: 100, Window: time.Minute, Settle: rules.SettleBy("served", served)},
		{Key: limit.ByIP, Limit: 10, Window: time.Second, Algorithm: limit.TokenBucket{Burst: 50}},
		{Key: limit.ByIP, Limit: 10, Window: time.Second, Algorithm: limit.TokenBucket{Burst: 50, Missing: 50}},
		{Key: limit.ByIP, Limit: 1, Window: time.Second, Algorithm: limit.TokenBucket{Burst: 20}},
		{Key: limit.ByIP, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{}},
		{Key: limit.ByIP, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{Aligned: true}},
	} {
		set := limit.Named(fmt.Sprint("options-", i), rule)
		fmt.Print(send(limiter.Limit(set)(http.HandlerFunc(ok)), "GET", "/").Code, " ")
	}
	limiter.Limit(limit.EachRoute(limit.PerIP(time.Minute, 100)))
	for _, text := range []string{"100/1m per ip plan pro 1000", "1000/1h per ip token-bucket; 20/1s per ip token-bucket"} {
		limit.MustParse(text)
	}
	limit.MustParse("100/1m per ip exempt ip 10.0.0.0/8")
	limit.MustParse("100/1m per ip refuse 503")
	mux := http.NewServeMux()
	_ = limiter.Limit(limit.Named("clients", limit.PerIP(time.Minute, 100)))(mux)
	calls, err := limiter.Policy(limit.Named("calls", limit.PerUser(time.Minute, 100)))
	if err != nil {
		panic(err)
	}
	alice := map[string]string{"user": "alice"}
	d, err := calls.Wait(ctx, limit.Request{Keys: alice})
	fmt.Println(d.Allowed, err)
	d, err = calls.Peek(ctx, limit.Request{Keys: alice})
	fmt.Println(d.Allowed, err)
	// Output:
	// 200 200 200 200 200 200 200 429 200 200 200 true <nil>
	// true <nil>
}

// The bodies of express-rate-limit.
func Example_migratingBodies() {
	limiter := limit.New(nil, nil)
	slow := http.NewServeMux()
	slow.Handle("GET /", limiter.Limit(limit.MustParse("100/1m per ip message \"Slow down.\""))(http.HandlerFunc(ok)))
	objects := http.NewServeMux()
	answer := func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) { fmt.Fprint(w, `{"error":"too many"}`) }
	objects.Handle("GET /", limit.New(nil, &limit.Options{Refuse: answer}).
		Limit(limit.Rules(limit.PerIP(time.Minute, 100)))(http.HandlerFunc(ok)))
	router, rl := gin.New(), ginlimit.New(limiter)
	rl.Refuse = func(c *gin.Context, _ limit.Decision) { c.JSON(c.Writer.Status(), gin.H{"error": "too many"}) }
	router.GET("/items", rl.Limit(limit.Rules(limit.PerIP(time.Minute, 100))), okGin)
	for range 100 {
		send(slow, "GET", "/")
		send(objects, "GET", "/")
		send(router, "GET", "/items")
	}
	fmt.Print(send(slow, "GET", "/").Body)
	w := send(objects, "GET", "/")
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Body)
	w = send(router, "GET", "/items")
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Body)
	// Output:
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Slow down.","violated-policies":["per-ip-1m"]}
	// 429 application/json {"error":"too many"}
	// 429 application/json; charset=utf-8 {"error":"too many"}
}
