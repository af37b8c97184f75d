package limit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/memstore"
	"github.com/routelimit/limit/redisstore"
)

// The program of the README: five updates in two seconds for each address, and
// a thousand a minute for all of them together.
func Example() {
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))

	router.POST("/update", rl.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5),
		limit.Global(time.Minute, 1000),
	)), func(c *gin.Context) { c.String(http.StatusOK, "updated\n") })

	for range 6 {
		w := send(router, "POST", "/update")
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "per-ip-2s";r=4;t=2, "global-1m";r=999;t=60
	// 200 "per-ip-2s";r=3;t=2, "global-1m";r=998;t=60
	// 200 "per-ip-2s";r=2;t=2, "global-1m";r=997;t=60
	// 200 "per-ip-2s";r=1;t=2, "global-1m";r=996;t=60
	// 200 "per-ip-2s";r=0;t=2, "global-1m";r=995;t=60
	// 429 "per-ip-2s";r=0;t=2, "global-1m";r=995;t=60
}

// On Echo, a refusal is an error, which Echo's own error handler answers.
func Example_echo() {
	server := echo.New()
	rl := echolimit.New(limit.New(nil, nil))

	server.POST("/update", func(c echo.Context) error {
		return c.NoContent(http.StatusNoContent)
	}, rl.Limit(limit.Rules(
		limit.PerIP(time.Minute, 1),
	)))

	fmt.Println(send(server, "POST", "/update").Code)
	w := send(server, "POST", "/update")
	fmt.Println(w.Code, w.Header().Get("Retry-After"))
	fmt.Print(w.Body)
	// Output:
	// 204
	// 429 60
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Try again in 60 s.","violated-policies":["per-ip-1m"]}
}

// Handler limits a handler of net/http, or a whole ServeMux.
func ExampleLimiter_Handler() {
	limiter := limit.New(nil, nil)
	mux := http.NewServeMux()
	mux.Handle("POST /update", limiter.Limit(limit.Rules(
		limit.PerIP(time.Minute, 1),
	))(http.HandlerFunc(update)))

	fmt.Println(send(mux, "POST", "/update").Code)
	fmt.Println(send(mux, "POST", "/update").Code)
	// Output:
	// 204
	// 429
}

// Mount reads routes and their rules from tags, as from annotations.
func ExampleLimiter_Mount() {
	type API struct {
		Update http.HandlerFunc `route:"POST /update" limit:"1/2s per ip; 1000/1m global"`
		Health http.HandlerFunc `route:"GET /health" limit:"-"`
	}
	mux := http.NewServeMux()
	if err := limit.New(nil, nil).Mount(mux, API{Update: update, Health: update}); err != nil {
		panic(err)
	}

	fmt.Println(send(mux, "POST", "/update").Code)
	fmt.Println(send(mux, "POST", "/update").Code)
	fmt.Println(send(mux, "GET", "/health").Code)
	// Output:
	// 204
	// 429
	// 204
}

// Take decides where there is no HTTP: in a job, a consumer, an interceptor.
func ExampleLimiter_Take() {
	mails := limit.Named("mails",
		limit.PerUser(time.Hour, 2),
		limit.Global(time.Hour, 1000))
	limiter := limit.New(nil, nil)

	for range 3 {
		d, err := mustPolicy(limiter, mails).Take(context.Background(), limit.Request{Keys: limit.Keys{"user": "alice"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Refusing(), d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true [] 0s
	// true [] 0s
	// false [per-user-1h] 1h0m0s
}

// Parse reads rules from flags and files, in the grammar of tags.
func ExampleParse() {
	rules, err := limit.Parse("5/2s per ip; login: 20/1h per user or ip; 1000/1m global")
	if err != nil {
		panic(err)
	}
	for _, r := range rules.Rules() {
		fmt.Println(r.Name, "allows", r.Limit, "in", r.Window)
	}

	_, err = limit.Parse("5/2s per pi")
	fmt.Println(err)
	// Output:
	// per-ip-2s allows 5 in 2s
	// login allows 20 in 1h0m0s
	// global-1m allows 1000 in 1m0s
	// limit: column 10 of "5/2s per pi": found "pi", want a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, or several of them with and, or and parentheses
	// 	5/2s per pi
	// 	         ^
}

// A rule is a struct: the literal names its attributes, as an annotation does.
func ExampleRule() {
	login := limit.Rule{
		Name:   "login",
		Key:    limit.Joined(limit.ByIP, limit.ByPathValue("tenant")),
		Limit:  20,
		Window: time.Hour,
	}
	fmt.Println(login)
	// Output:
	// login: 20/1h per ip and path tenant
}

// With Redis, all instances of a program share the quotas.
func ExampleNew_redis() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiter := limit.New(redisstore.New(client, nil), nil)

	http.Handle("POST /update", limiter.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5)))(http.HandlerFunc(update)))
}

// Wrong: the replicas of a service that each keep their own quotas admit the
// limit each.
func ExampleNew_incorrect() {
	for range 3 {
		replica := limit.New(memstore.New(nil), nil).Handler(limit.Rules(
			limit.Global(time.Minute, 1)), http.HandlerFunc(update))
		fmt.Println(send(replica, "POST", "/").Code)
	}
	// Output:
	// 204
	// 204
	// 204
}

// Right: the replicas share a store. Here it stands in for that of package
// redisstore, which processes can share.
func ExampleNew() {
	store := memstore.New(nil)
	for range 3 {
		replica := limit.New(store, nil).Limit(limit.Rules(
			limit.Global(time.Minute, 1)))(http.HandlerFunc(update))
		fmt.Println(send(replica, "POST", "/").Code)
	}
	// Output:
	// 204
	// 429
	// 429
}

// Wrong: nothing has checked the header, so a client that makes up another key
// has another quota.
func ExampleByHeader_incorrect() {
	h := limit.New(nil, nil).Limit(limit.Rules(
		limit.Per(limit.ByHeader("X-API-Key"), time.Minute, 1)))(http.HandlerFunc(update))

	for _, made := range []string{"a", "b", "c"} {
		fmt.Println(send(h, "POST", "/", "X-API-Key", made).Code)
	}
	// Output:
	// 204
	// 204
	// 204
}

// Right: keys that do not exist never reach the rule by key, and the rule by
// address in front bounds the attempts to guess one.
func ExampleByHeader() {
	limiter := limit.New(nil, nil)
	checked := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-API-Key") != "the real one" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	h := limiter.Limit(limit.Named("attempts", limit.PerIP(time.Minute, 3)))(checked(limiter.Limit(limit.Named("calls", limit.Per(limit.ByHeader("X-API-Key"), time.Minute, 1)))(http.HandlerFunc(update))))

	for _, key := range []string{"made up", "the real one", "the real one", "made up"} {
		fmt.Println(send(h, "POST", "/", "X-API-Key", key).Code)
	}
	// Output:
	// 401
	// 204
	// 429
	// 429
}

// Wrong: behind a proxy that the program does not name, all clients have the
// address of the proxy, and one quota.
func ExampleProxies_incorrect() {
	h := limit.New(nil, nil).Limit(limit.Rules(limit.PerIP(time.Minute, 1)))(http.HandlerFunc(update))

	fmt.Println(send(h, "POST", "/", "X-Forwarded-For", "203.0.113.1").Code)
	fmt.Println(send(h, "POST", "/", "X-Forwarded-For", "203.0.113.2").Code)
	// Output:
	// 204
	// 429
}

// Right: the prefixes of the proxies are named. What a client writes itself
// stands further left, and is not believed.
func ExampleProxies() {
	limiter := limit.New(nil, &limit.Options{Proxies: limit.Proxies{
		Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, // of the examples' requests
	}})
	h := limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 1)))(http.HandlerFunc(update))

	fmt.Println(send(h, "POST", "/", "X-Forwarded-For", "203.0.113.1").Code)
	fmt.Println(send(h, "POST", "/", "X-Forwarded-For", "203.0.113.2").Code)
	fmt.Println(send(h, "POST", "/", "X-Forwarded-For", "198.51.100.9, 203.0.113.2").Code)
	// Output:
	// 204
	// 204
	// 429
}

// update is a handler for the examples.
func update(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// send sends a request from 192.0.2.1, with headers given as name, value.
func send(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
