package docs_test

import (
	"context"
	"fmt"

	"github.com/routelimit/limit"
)

func export(ctx context.Context, exports *limit.Policy) error {
	d, err := exports.Take(ctx, limit.Request{Keys: map[string]string{"user": "alice"}})
	if err != nil || !d.Allowed {
		return err // or wait for d.RetryAfter
	}
	defer d.Release()

	left, err := exports.Peek(ctx, limit.Request{Keys: map[string]string{"user": "alice"}})
	for rule := range left.Rules() {
		fmt.Println("left:", rule.Remaining)
	}
	return err
}

func Example_algorithms() {
	limiter := limit.New(nil, nil)
	exports, err := limiter.Policy(limit.Named("exports", limit.Rule{Key: limit.ByUser, Limit: 5, Algorithm: limit.Concurrency{}}))
	if err != nil {
		panic(err)
	}
	for range 2 {
		if err := export(context.Background(), exports); err != nil {
			panic(err)
		}
	}
	// Output:
	// left: 4
	// left: 4
}
