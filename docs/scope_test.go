package docs_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
)

func Example_scope() {
	login, show := okGin, okGin

	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))

	// The whole application: all routes share one quota.
	router.Use(rl.Limit(limit.Named("application", limit.PerIP(time.Minute, 5))))

	// One route: the quota belongs to POST /login.
	router.POST("/login", rl.Limit(limit.Rules(limit.PerIP(time.Hour, 1))), login)

	// A group: GET /reports/sales and GET /reports/stock each have a quota.
	reports := router.Group("/reports", rl.Limit(limit.EachRoute(limit.PerIP(time.Hour, 1))))
	reports.GET("/sales", show)
	reports.GET("/stock", show)

	for _, path := range []string{"/reports/sales", "/reports/sales", "/reports/stock"} {
		fmt.Println("GET", path, send(router, "GET", path).Code)
	}
	for range 3 {
		fmt.Println("POST /login", send(router, "POST", "/login").Code)
	}
	// Output:
	// GET /reports/sales 200
	// GET /reports/sales 429
	// GET /reports/stock 200
	// POST /login 200
	// POST /login 429
	// POST /login 429
}

func Example_scopeWith() {
	login, show := okGin, okGin
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))

	application := limit.Named("application", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 3, Window: time.Hour})

	router.POST("/login", rl.Limit(limit.Rules(limit.PerIP(time.Hour, 1)).With(application)), login)
	router.GET("/reports", rl.Limit(limit.Named("reports", limit.PerIP(time.Hour, 9)).With(application)), show)

	for range 2 {
		w := send(router, "POST", "/login")
		fmt.Println("POST /login", w.Code, w.Header().Get("RateLimit"))
	}
	for range 3 {
		w := send(router, "GET", "/reports")
		fmt.Println("GET /reports", w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// POST /login 200 "per-ip-1h";r=0;t=3600, "all";r=2;t=3600
	// POST /login 429 "per-ip-1h";r=0;t=3600, "all";r=2;t=3600
	// GET /reports 200 "per-ip-1h";r=8;t=3600, "all";r=1;t=3600
	// GET /reports 200 "per-ip-1h";r=7;t=3600, "all";r=0;t=3600
	// GET /reports 429 "per-ip-1h";r=7;t=3600, "all";r=0;t=3600
}

func Example_scopeAttempts() {
	authenticate := func(c *gin.Context) {
		fmt.Print("authenticated: ")
		c.Set("user", "alice")
	}
	me := okGin

	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }

	router.Use(rl.Limit(limit.Named("addresses", limit.Rule{Key: limit.ByIP, Limit: 3, Window: time.Minute, Attempts: true})))
	router.Use(authenticate)
	router.GET("/me", rl.Limit(limit.Rules(limit.PerUser(time.Hour, 1))), me)

	for range 4 {
		fmt.Println(send(router, "GET", "/me").Code)
	}
	// Output:
	// authenticated: 200
	// authenticated: 429
	// authenticated: 429
	// 429
}

func Example_scopeNetHTTP() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", ok)

	limiter := limit.New(nil, nil)
	application := limit.Named("application", limit.PerIP(time.Minute, 1))
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: limiter.Limit(application)(mux)}

	fmt.Println(send(server.Handler, "GET", "/").Code)
	fmt.Println(send(server.Handler, "GET", "/other").Code)
	// Output:
	// 200
	// 429
}

func Example_scopeEachRoute() {
	sales, stock := http.HandlerFunc(ok), http.HandlerFunc(ok)
	mux := http.NewServeMux()
	limiter := limit.New(nil, &limit.Options{
		Observe: func(_ *http.Request, d limit.Decision, _ error) { fmt.Print(d.Policy, ": ") },
	})

	each := limiter.Limit(limit.EachRoute(limit.PerIP(time.Minute, 1)))
	mux.Handle("GET /sales", each(sales))
	mux.Handle("GET /stock", each(stock))

	for _, path := range []string{"/sales", "/sales", "/stock"} {
		fmt.Println(send(mux, "GET", path).Code)
	}
	// Output:
	// GET /sales: 200
	// GET /sales: 429
	// GET /stock: 200
}
