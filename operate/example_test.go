package operate_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
)

func Example() {
	limiter := limit.New(nil, nil)
	logins, err := limiter.Policy(limit.Named("login", limit.PerUser(time.Minute, 5)).Overridable())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	alice := map[string]string{"user": "alice"}
	if _, err := logins.Take(ctx, limit.Request{Keys: alice, Cost: 3}); err != nil {
		log.Fatal(err)
	}
	for policy, rules := range operate.Policies(limiter) {
		fmt.Println(policy, rules)
	}

	// Help one user.
	key, _ := operate.Key(logins, "per-user-1m", alice)
	rule, _ := operate.Peek(ctx, limiter, "login", "per-user-1m", key, "")
	fmt.Println(rule.Remaining, "of", rule.Limit)
	fmt.Println(operate.Reset(ctx, limiter, "login", "per-user-1m", key))

	// Give all users more until the next change.
	fmt.Println(operate.Change(limiter, limit.Named("login", limit.PerUser(time.Minute, 20))))
	rule, _ = operate.Peek(ctx, limiter, "login", "per-user-1m", key, "")
	fmt.Println(rule.Remaining, "of", rule.Limit)
	// Output:
	// login 5/1m per user
	// 2 of 5
	// <nil>
	// <nil>
	// 20 of 20
}
