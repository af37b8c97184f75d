package docs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/routelimit/limit"
)

func Example_withoutHTTP() {
	ctx := context.Background()

	limiter := limit.New(nil, nil)
	mails, err := limiter.Policy(limit.Named("mails",
		limit.PerUser(time.Hour, 2),
		limit.Global(time.Hour, 100),
	))
	if err != nil {
		log.Fatal(err)
	}
	alice := limit.Keys{"user": "alice"}
	for range 3 {
		d, err := mails.Take(ctx, limit.Request{Keys: alice})
		if err != nil {
			log.Fatal(err) // the store failed
		}
		fmt.Println(d.Allowed, d.Refusing())
	}
	// Output:
	// true []
	// true []
	// false [per-user-1h]
}

func Example_reserve() {
	ctx := context.Background()
	limiter := limit.New(nil, nil)
	alice := limit.Keys{"user": "alice"}
	complete := func() int64 { return 400 }

	tokens, err := limiter.Policy(limit.Named("tokens", limit.PerUser(time.Minute, 10_000)))
	if err != nil {
		log.Fatal(err)
	}
	d, err := tokens.Reserve(ctx, limit.Request{Keys: alice, Cost: 4_000}) // the most that it may cost
	if err != nil || !d.Allowed {
		return
	}
	used := complete()
	if err := d.Settle(ctx, used); err != nil {
		log.Println(err)
	}

	left, _ := tokens.Peek(ctx, limit.Request{Keys: alice})
	fmt.Println(left.Rules()[0].Remaining)
	// Output:
	// 9600
}
