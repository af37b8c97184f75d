package prefetch_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

func Example() {
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	inner := refusals.New(guard.New(redisstore.New(client, nil), nil))
	store := prefetch.New(inner, &prefetch.Options{Rules: []prefetch.Rule{{Policy: "api", Name: "all"}}})
	defer store.Close(context.Background())

	// 50,000 requests a second, of all instances together.
	all := core.Quota{Limit: 50_000, Window: time.Second.Microseconds()}
	charges := []core.Charge{{Policy: "api", Rule: "all", Quota: all, Cost: 1}}
	decision, err := core.Take(context.Background(), store, charges)
	if err != nil || !decision.Allowed {
		return
	}
	// Do the work.
}
