package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// A twin is a second server on which each call of the store runs as well, by the
// files as they are written. Replies and states must be those of the script that the
// store runs, which is flattened.
type twin struct {
	t      *testing.T
	client *redis.Client

	mu    sync.Mutex // both servers have the calls in the same order
	calls int
}

// withTwin returns a client whose calls run on the twin too.
func withTwin(t *testing.T) (*redis.Client, *twin) {
	client, other := redistest.Real(t), &twin{t: t, client: redistest.Real(t)} // two servers
	bare := redis.NewClient(client.Options())                                  // without the hook
	t.Cleanup(func() { bare.Close() })
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		other.mu.Lock()
		defer other.mu.Unlock()
		err := next(ctx, cmd)
		args := cmd.Args()
		switch {
		case cmd.Name() == "flushdb":
			require.NoError(t, other.client.FlushDB(ctx).Err())
		case cmd.Name() == "del":
			require.NoError(t, other.client.Do(ctx, args...).Err())
		case cmd.Name() != "evalsha" && cmd.Name() != "eval" || redis.HasErrorPrefix(err, "NOSCRIPT "):
		default:
			sha := args[1].(string)
			if cmd.Name() == "eval" {
				sum := sha1.Sum([]byte(sha))
				sha = hex.EncodeToString(sum[:])
			}
			if text := lua.Plain(sha); text != "" {
				other.compare(context.WithoutCancel(ctx), bare, text, args[2:], cmd, err)
			}
		}
		return err
	}))
	return client, other
}

// compare runs a call on the twin.
func (w *twin) compare(ctx context.Context, client *redis.Client, text string, args []any, cmd redis.Cmder, err error) {
	w.calls++
	got, failed := w.client.Do(ctx, append([]any{"eval", text}, args...)...).Int64Slice()
	assert.Equal(w.t, err == nil, failed == nil, "%v, %v", err, failed)
	if reply, ok := cmd.(once); ok && err == nil {
		assert.Equal(w.t, reply.Val(), got)
	}
	if w.calls%10 != 0 { // a difference in a state shows in later replies too
		return
	}
	for _, key := range args[1 : 1+args[0].(int)] {
		key := key.(string)
		assert.Equal(w.t, client.Get(ctx, key).Val(), w.client.Get(ctx, key).Val(), key)
		assert.InDelta(w.t, client.PTTL(ctx, key).Val().Seconds(), w.client.PTTL(ctx, key).Val().Seconds(), 5, key)
	}
}

// TestFlattened runs random schedules of all stores, and batches, on a store with a twin.
func TestFlattened(t *testing.T) {
	race.Skip(t)
	client, other := withTwin(t)
	h := harness(client)
	here, there := h.Elapse, elapse(other.client)
	h.Elapse = func(micros int64) { here(micros); there(micros) }
	storetest.Schedules(t, h, 1, 60)
	storetest.Algorithms(t, h, 1, 12)
	now := start
	compareBatches(t, at(client, &now), &now, 60)
	t.Logf("%d calls", other.calls)
	assert.Greater(t, other.calls, 1000)
}
