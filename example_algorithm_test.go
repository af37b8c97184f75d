package limit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// A token bucket takes a burst at once, and then its rate.
func ExampleRule_tokenBucket() {
	h := limit.New(nil, nil).Limit(limit.Rules(limit.Rule{
		Key: limit.ByIP, Limit: 60, Window: time.Minute,
		Algorithm: limit.TokenBucket, Burst: 2,
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
		Algorithm: limit.FixedWindow, Calendar: limit.Calendar{Unit: limit.Month, Zone: time.UTC},
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
			Cost: func(r *http.Request) int64 {
				rows, err := strconv.ParseInt(r.URL.Query().Get("rows"), 10, 64)
				if err != nil || rows < 1 {
					return 1 // what the handler does with such a request
				}
				return rows
			},
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

// TakeN takes several units outside HTTP, all of them or none.
func ExampleLimiter_TakeN() {
	mails := limit.Named("mails", limit.PerUser(time.Hour, 100))
	limiter := limit.New(nil, nil)

	for _, recipients := range []int64{80, 30, 20} {
		d, err := mustPolicy(limiter, mails).Take(context.Background(), limit.Request{Keys: limit.Keys{"user": "alice"}, Cost: recipients})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Rules()[0].Remaining)
	}
	// Output:
	// true 20
	// false 20
	// true 0
}

// TakeUpTo takes as many units as there are: a consumer of a queue fetches no
// more messages than it may send.
func ExampleLimiter_TakeUpTo() {
	mails := limit.Named("mails", limit.PerUser(time.Hour, 100))
	limiter := limit.New(nil, nil)

	for range 3 {
		_, n, err := mustPolicy(limiter, mails).Take(context.Background(), limit.Request{Keys: limit.Keys{"user": "alice"}, Cost: 60, UpTo: true})
		if err != nil {
			panic(err)
		}
		fmt.Println("fetch", n)
	}
	// Output:
	// fetch 60
	// fetch 40
	// fetch 0
}

// Wait waits until the rules admit. A wait that would end after the deadline of
// its context fails at once.
func ExampleLimiter_Wait() {
	calls := limit.Named("calls", limit.PerUser(20*time.Millisecond, 1), limit.PerUser(time.Hour, 3))
	limiter := limit.New(nil, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	start := time.Now()
	for range 4 {
		_, err := mustPolicy(limiter, calls).Wait(ctx, limit.Request{Keys: limit.Keys{"user": "alice"}})
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
func ExampleLimiter_Peek() {
	mails := limit.Named("mails", limit.PerUser(time.Hour, 2))
	limiter := limit.New(nil, nil)
	alice := limit.Keys{"user": "alice"}

	for range 3 {
		d, err := mustPolicy(limiter, mails).Peek(context.Background(), limit.Request{Keys: alice})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Rules()[0].Remaining)
		if _, err := mustPolicy(limiter, mails).Take(context.Background(), limit.Request{Keys: alice}); err != nil {
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
	calls := limit.Named("calls", limit.Rule{
		Key: limit.Everyone, Limit: 100, Window: time.Second,
		Algorithm: limit.Queue, Burst: 10, MaxWait: time.Second,
	})
	limiter := limit.New(nil, nil)
	ctx := context.Background()

	start := time.Now()
	for range 4 {
		d, err := mustPolicy(limiter, calls).Take(ctx, limit.Request{})
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
	exports := limit.Named("exports", limit.Concurrent(limit.ByUser, 2), limit.PerUser(time.Hour, 100))
	limiter := limit.New(nil, nil)

	export := func() (done func()) {
		d, err := mustPolicy(limiter, exports).Take(context.Background(), limit.Request{Keys: limit.Keys{"user": "alice"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Refusing())
		return d.Release
	}
	first := export()
	defer export()()
	export()
	first()
	defer export()()
	// Output:
	// true []
	// true []
	// false [per-user-concurrency]
	// true []
}

// Throttle slows bodies: a user's downloads get 100 kB a second together, behind
// a burst, and all users a megabyte.
func ExampleLimiter_Throttle() {
	limiter := limit.New(nil, &limit.Options{
		User: func(r *http.Request) string { return r.Header.Get("X-User") },
	})
	user := throttle.Bandwidth(limit.ByUser, time.Second, 100_000)
	user.Burst = 20_000
	h := throttle.Must(throttle.New(limiter, limit.Rules(user, throttle.Bandwidth(limit.Everyone, time.Second, 1_000_000)), nil)).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 70_000)) }))

	start := time.Now()
	fmt.Println(send(h, "GET", "/").Body.Len(), "bytes; half a second or more:", time.Since(start) >= 500*time.Millisecond)
	// Output:
	// 70000 bytes; half a second or more: true
}
