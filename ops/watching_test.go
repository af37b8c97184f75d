package ops_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/feed"
	"github.com/routelimit/limit/ops/topkeys"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestWatching runs the programs of docs/watching.md.
func TestWatching(t *testing.T) {
	client := redistest.Launch(t).Client()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	secret := []byte("secret")
	instance := func() *limit.Limiter {
		limiter := limit.New(redisstore.New(client, nil), nil)
		stop := feed.Publish(limiter, client, &feed.Options{Instance: "api-2"})
		defer stop()

		return limiter
	}
	limiter := instance() // which has stopped
	stop := feed.Publish(limiter, client, &feed.Options{Name: topkeys.Hashed(secret)})
	defer stop()

	policy := must.Get(limiter.Policy(limit.Named("login", limit.PerUser(time.Hour, 1))))(t)
	for batch, err := range feed.Subscribe(ctx, client, "") {
		require.NoError(t, err)
		for range 2 {
			must.Get(policy.Take(ctx, limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
		}
		if n := len(batch.Events); n > 0 && !batch.Events[n-1].Allowed {
			assert.Equal(t, topkeys.Hashed(secret)("alice"), batch.Events[n-1].Rules[0].Key)
			break
		}
	}
	require.NoError(t, ctx.Err())

	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for batch, err := range feed.Subscribe(ctx, client, "") {
		if err != nil {
			log.Print(err) // and goes on as soon as Redis answers
			continue
		}
		for _, event := range batch.Events {
			fmt.Println(batch.Instance, event.Policy, event.Outcome)
		}
	}
}
