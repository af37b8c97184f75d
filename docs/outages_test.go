package docs_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/redisstore"
)

// redisLog passes the lines of go-redis to slog.
type redisLog struct{}

func (redisLog) Printf(ctx context.Context, format string, v ...any) {
	slog.DebugContext(ctx, "go-redis", "line", fmt.Sprintf(format, v...))
}

func Example_outages() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing listens here
	limiter := limit.New(redisstore.New(client, nil), &limit.Options{
		Instances: 2,
		Log:       slog.New(slog.DiscardHandler),
	})

	rules := map[string]limit.Rule{
		"Local":  {Key: limit.Everyone, Limit: 4, Window: time.Hour}, // the default
		"Allow":  {Key: limit.Everyone, Limit: 4, Window: time.Hour, OnStoreError: limit.Allow},
		"Refuse": {Key: limit.Everyone, Limit: 4, Window: time.Hour, OnStoreError: limit.Refuse},
	}
	for _, name := range []string{"Local", "Allow", "Refuse"} {
		policy, err := limiter.Policy(limit.Named(name, rules[name]))
		if err != nil {
			log.Fatal(err)
		}
		admitted := 0
		var mode core.Mode
		for range 10 {
			d, err := policy.Take(context.Background(), limit.Request{})
			if err != nil {
				log.Fatal(err)
			}
			if mode = d.Mode; d.Allowed {
				admitted++
			}
		}
		fmt.Println(name, "admits", admitted, "of 10, mode", mode)
	}
	// Output:
	// Local admits 2 of 10, mode local
	// Allow admits 10 of 10, mode allowed
	// Refuse admits 0 of 10, mode refused
}
