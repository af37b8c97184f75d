package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
)

// authenticate stands for middleware that verifies a token: here it is "user:plan".
func authenticate(c *gin.Context) {
	user, plan, found := strings.Cut(c.GetHeader("Authorization"), ":")
	if !found {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Set("user", user)
	c.Set("plan", plan)
}

func Example_usersAndPlans() {
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	rl.Caller.Plan = func(c *gin.Context) string { return c.GetString("plan") }

	router.Use(rl.Limit(limit.Named("clients", // before authentication
		limit.Rule{Key: limit.ByIP, Limit: 600, Window: time.Minute, Attempts: true})))
	router.Use(authenticate) // verifies the JWT, and sets user and plan by c.Set
	router.Use(rl.Limit(limit.Named("users",
		limit.Rule{Key: limit.ByUser, Limit: 1, Window: time.Hour, Plans: map[string]int64{"pro": 2}})))

	router.GET("/items", okGin)

	for _, token := range []string{"alice:free", "alice:free", "bob:pro", "bob:pro", "bob:pro", "alice:pro"} {
		fmt.Println(token, send(router, "GET", "/items", "Authorization", token).Code)
	}
	// Output:
	// alice:free 200
	// alice:free 429
	// bob:pro 200
	// bob:pro 200
	// bob:pro 429
	// alice:pro 200
}

func Example_usersAndPlansSets() {
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	router.Use(authenticate)

	free := rl.Limit(limit.Named("free", limit.PerUser(time.Hour, 1)))
	pro := rl.Limit(limit.Named("pro", limit.PerUser(time.Hour, 2)))
	router.Use(func(c *gin.Context) {
		if c.GetString("plan") == "pro" {
			pro(c)
		} else {
			free(c)
		}
	})

	router.GET("/items", okGin)

	for _, token := range []string{"alice:free", "alice:free", "alice:pro", "alice:pro", "alice:pro"} {
		fmt.Println(token, send(router, "GET", "/items", "Authorization", token).Code)
	}
	// Output:
	// alice:free 200
	// alice:free 429
	// alice:pro 200
	// alice:pro 200
	// alice:pro 429
}

func Example_userFromProxy() {
	proxy := netip.MustParsePrefix("10.0.0.5/32")
	user := func(r *http.Request) string {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !proxy.Contains(peer.Addr().Unmap()) {
			return ""
		}
		return r.Header.Get("X-Auth-Request-Email")
	}
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}})

	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerUser(time.Hour, 1)))(http.HandlerFunc(ok)))
	for _, request := range [][2]string{
		{"10.0.0.5:1", "ann"}, {"10.0.0.5:1", "ann"}, {"10.0.0.5:1", "bob"}, {"203.0.113.9:1", "eve"}, {"203.0.113.9:1", "mallory"},
	} {
		r := httptest.NewRequest("GET", "/items", nil)
		r.RemoteAddr = request[0]
		r.Header.Set("X-Auth-Request-Email", request[1])
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(request[0], request[1], w.Code)
	}
	// Output:
	// 10.0.0.5:1 ann 200
	// 10.0.0.5:1 ann 429
	// 10.0.0.5:1 bob 200
	// 203.0.113.9:1 eve 200
	// 203.0.113.9:1 mallory 429
}
