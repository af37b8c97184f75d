package limit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
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

// Limit is middleware for one route of a ServeMux.
func ExampleLimiter_Limit() {
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
func ExamplePolicy_Take() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("mails",
		limit.PerUser(time.Hour, 2),
		limit.Global(time.Hour, 1000)))
	if err != nil {
		panic(err)
	}

	for range 3 {
		d, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": "alice"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 0s
	// true 0s
	// false 1h0m0s
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
		Key:    limit.ByIP.And(limit.ByPathValue("tenant")),
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
		replica := limit.New(memstore.New(nil), nil).Limit(limit.Rules(
			limit.Global(time.Minute, 1)))(http.HandlerFunc(update))
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
// address in front bounds the attempts to guess one, also those that the rule by key
// refuses.
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
	attempts := limiter.Limit(limit.Named("attempts",
		limit.Rule{Key: limit.ByIP, Limit: 3, Window: time.Minute, Attempts: true}))
	calls := limiter.Limit(limit.Named("calls", limit.Per(limit.ByHeader("X-API-Key"), time.Minute, 1)))
	h := attempts(checked(calls(http.HandlerFunc(update))))

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

// A token bucket takes a burst at once, and then its rate.
func ExampleRule_tokenBucket() {
	h := limit.New(nil, nil).Limit(limit.Rules(limit.Rule{
		Key: limit.ByIP, Limit: 60, Window: time.Minute,
		Algorithm: limit.TokenBucket{Burst: 2},
	}))(http.HandlerFunc(update))

	for range 3 {
		w := send(h, "POST", "/")
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 204 "per-ip-1m";r=1;t=1
	// 204 "per-ip-1m";r=0;t=1
	// 429 "per-ip-1m";r=0;t=1
}

// A calendar makes windows of the months of a time zone. In text, it is the
// word for the unit, and the zone.
func ExampleCalendar() {
	plan := limit.Rule{
		Key: limit.ByUser, Limit: 10_000,
		Algorithm: limit.FixedWindow{Calendar: core.Calendar{Unit: core.Month, Zone: time.UTC}},
	}
	fmt.Println(plan)
	fmt.Println(limit.Rules(plan).Rules()[0].Name)
	// Output:
	// 10000/month per user zone UTC
	// per-user-month
}

// A request may cost more than one unit. Rules without a Cost count requests.
func ExampleRule_cost() {
	h := limit.New(nil, nil).Limit(limit.Rules(
		limit.Global(time.Minute, 100),
		limit.Rule{
			Name: "rows", Key: limit.ByIP, Limit: 1000, Window: time.Hour,
			Cost: rules.CostBy("rows", func(r *http.Request) int64 {
				rows, err := strconv.ParseInt(r.URL.Query().Get("rows"), 10, 64)
				if err != nil || rows < 1 {
					return 1 // what the handler does with such a request
				}
				return rows
			}),
		},
	))(http.HandlerFunc(update))

	for _, rows := range []string{"600", "600", "400", "-5"} {
		w := send(h, "POST", "/?rows="+rows)
		fmt.Println(rows, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 600 204 "global-1m";r=99;t=60, "rows";r=400;t=3600
	// 600 429 "global-1m";r=99;t=60, "rows";r=400;t=3600
	// 400 204 "global-1m";r=98;t=60, "rows";r=0;t=3600
	// -5 429 "global-1m";r=98;t=60, "rows";r=0;t=3600
}

// A request may cost several units: it takes all of them or none.
func ExamplePolicy_Take_cost() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("mails", limit.PerUser(time.Hour, 100)))
	if err != nil {
		panic(err)
	}

	for _, recipients := range []int64{80, 30, 20} {
		d, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": "alice"}, Cost: recipients})
		if err != nil {
			panic(err)
		}
		for rule := range d.Rules() {
			fmt.Println(d.Allowed, rule.Remaining)
		}
	}
	// Output:
	// true 20
	// false 20
	// true 0
}

// UpTo takes as many units as there are: a consumer of a queue fetches no more
// messages than it may send.
func ExampleRequest() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("mails", limit.PerUser(time.Hour, 100)))
	if err != nil {
		panic(err)
	}

	for range 3 {
		d, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": "alice"}, Cost: 60, UpTo: true})
		if err != nil {
			panic(err)
		}
		fmt.Println("fetch", d.Taken)
	}
	// Output:
	// fetch 60
	// fetch 40
	// fetch 0
}

// Wait waits until the rules admit. A wait that would end after the deadline of
// its context fails at once.
func ExamplePolicy_Wait() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("calls", limit.PerUser(20*time.Millisecond, 1), limit.PerUser(time.Hour, 3)))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	start := time.Now()
	for range 4 {
		_, err := policy.Wait(ctx, limit.Request{Keys: map[string]string{"user": "alice"}})
		var refused *limit.RefusedError
		switch {
		case errors.As(err, &refused):
			fmt.Println("not within a minute")
		case err != nil:
			panic(err)
		default:
			fmt.Println("called")
		}
	}
	fmt.Println("two windows of 20 ms:", time.Since(start) >= 40*time.Millisecond)
	// Output:
	// called
	// called
	// called
	// not within a minute
	// two windows of 20 ms: true
}

// Peek says what is left, and whether a request would pass, and takes nothing.
func ExamplePolicy_Peek() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("mails", limit.PerUser(time.Hour, 2)))
	if err != nil {
		panic(err)
	}
	alice := map[string]string{"user": "alice"}

	for range 3 {
		d, err := policy.Peek(context.Background(), limit.Request{Keys: alice})
		if err != nil {
			panic(err)
		}
		for rule := range d.Rules() {
			fmt.Println(d.Allowed, rule.Remaining)
		}
		if _, err := policy.Take(context.Background(), limit.Request{Keys: alice}); err != nil {
			panic(err)
		}
	}
	// Output:
	// true 2
	// true 1
	// false 0
}

// A queue lets requests go on one after the other. Handlers wait by themselves;
// a job calls Wait.
func ExampleDecision_Wait() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("calls", limit.Rule{
		Key: limit.Everyone, Limit: 100, Window: time.Second,
		Algorithm: limit.Queue{Burst: 10, MaxWait: time.Second},
	}))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	start := time.Now()
	for range 4 {
		d, err := policy.Take(ctx, limit.Request{})
		if err != nil {
			panic(err)
		}
		if err := d.Wait(ctx); err != nil {
			panic(err) // refused, or ctx has ended
		}
	}
	fmt.Println("three intervals of 10 ms:", time.Since(start) >= 30*time.Millisecond)
	// Output:
	// three intervals of 10 ms: true
}

// A lease is held from the decision until Release, and renewed meanwhile.
// Handlers release by themselves; a job calls Release.
func ExampleDecision_Release() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("exports", limit.Rule{Key: limit.ByUser, Limit: 2, Algorithm: limit.Concurrency{}}, limit.PerUser(time.Hour, 100)))
	if err != nil {
		panic(err)
	}

	export := func() (done func()) {
		d, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": "alice"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed)
		return d.Release
	}
	first := export()
	defer export()()
	export()
	first()
	defer export()()
	// Output:
	// true
	// true
	// false
	// true
}

// Named makes one quota for a whole application. The handler behind the rules may be
// a ServeMux, or any router.
func ExamplePolicy_Handler() {
	policy, err := limit.New(nil, nil).Policy(limit.Named("all",
		limit.PerIP(time.Minute, 2)))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /update", update)
	mux.HandleFunc("GET /items", update)
	app := policy.Handler(mux)

	fmt.Println(send(app, "POST", "/update").Code)
	fmt.Println(send(app, "GET", "/items").Code)
	fmt.Println(send(app, "GET", "/items").Code)
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
