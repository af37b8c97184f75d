package docs_test

import (
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/operate"
)

func Example_changingLimits() {
	limiter := limit.New(nil, nil)
	router, rl := gin.New(), ginlimit.New(limiter)

	router.Use(rl.Limit(limit.Named("api", limit.PerIP(time.Minute, 2)).Overridable()))

	raise := func() error {
		return operate.Change(limiter, limit.Named("api", limit.PerIP(time.Minute, 3)))
	}

	router.GET("/items", okGin)
	get := func() {
		w := send(router, "GET", "/items")
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	get()
	get()
	get()
	fmt.Println("raised:", raise())
	get()
	fmt.Println("undone:", operate.Change(limiter))
	get()
	// Output:
	// 200 "per-ip-1m";r=1;t=60
	// 200 "per-ip-1m";r=0;t=60
	// 429 "per-ip-1m";r=0;t=60
	// raised: <nil>
	// 200 "per-ip-1m";r=0;t=60
	// undone: <nil>
	// 429 "per-ip-1m";r=0;t=60
}
