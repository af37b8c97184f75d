//go:build !race

package main

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
)

// TestAllocations holds a lone decision of two rules on Redis to the allocations of EVALSHA
// with the same keys and arguments, and three. The race detector empties pools at random, so
// scripts/test.sh runs it without.
func TestAllocations(t *testing.T) {
	client := redistest.Real(t)
	rules := twoRules{window: time.Hour, each: 100_000, together: 100_000}.rules()
	request := limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}}
	takeOn := func(client *redis.Client) func() {
		policy, err := limit.New(onRedis(client), nil).Policy(rules)
		require.NoError(t, err)
		return func() {
			d, err := policy.Take(context.Background(), request)
			assert.True(t, err == nil && d.Allowed, err)
		}
	}
	recording := redis.NewClient(client.Options())
	defer recording.Close()
	var call recorder
	recording.AddHook(&call)
	takeOn(recording)()
	n := call[2].(int)
	var keys []string
	for _, key := range call[3:][:n] {
		keys = append(keys, key.(string))
	}
	floor := testing.AllocsPerRun(500, func() {
		assert.NoError(t, client.EvalSha(context.Background(), call[1].(string), keys, call[3+n:]...).Err())
	})
	take := takeOn(client)
	take()
	assert.LessOrEqual(t, testing.AllocsPerRun(500, take), floor+3)
}

// A recorder is a hook that keeps the first call of EVALSHA.
type recorder []any

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && *r == nil {
			*r = cmd.Args()
		}
		return next(ctx, cmd)
	}
}
