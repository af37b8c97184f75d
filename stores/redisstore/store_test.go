package redisstore

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/storetest"
)

// TestStore runs the suite of all stores.
func TestStore(t *testing.T) {
	client := redistest.Client(t)
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		test(t, harness(client))
	})
}

func harness(client redis.UniversalClient) storetest.Harness {
	now := start
	return storetest.Harness{Store: at(client, &now), SetTime: func(micros int64) { now = micros }, Elapse: elapse(client)}
}

// deleteStates deletes all keys but tokens: a store takes an emptied server for one that lost its data.
func deleteStates(t testing.TB, client redis.UniversalClient) {
	t.Helper()
	keys := must.Get(client.Keys(t.Context(), "*").Result())(t)
	for _, key := range keys {
		if !strings.Contains(key, ":token:") {
			require.NoError(t, client.Del(t.Context(), key).Err())
		}
	}
}

// elapse returns what makes keys expire by the clock of a test: it moves their
// TTLs, which the store under test prolongs by an hour. Ten seconds of that are
// left, for a test that is slow by the clock of Redis.
func elapse(client redis.UniversalClient) func(micros int64) {
	script := redis.NewScript(`
		for _, key in ipairs(redis.call('KEYS', '*')) do
			local left = redis.call('PTTL', key) - ARGV[1]
			if string.find(key, ':token:') then -- outlives what a test counts
			elseif left <= 3590000 then redis.call('DEL', key) else redis.call('PEXPIRE', key, left) end
		end`)
	var rest int64 // less than a millisecond
	return func(micros int64) {
		rest += micros
		if err := script.Run(context.Background(), client, nil, rest/1_000).Err(); err != nil && !errors.Is(err, redis.Nil) {
			panic(err)
		}
		rest %= 1_000
	}
}

// TestGuarded runs the suite through a guard, on a store with a Secret. The memory of the
// guard goes by another clock than the store, years away, which must not show while the
// store works. It runs few random schedules: TestStore runs them on the same script.
func TestGuarded(t *testing.T) {
	if os.Getenv("LIMIT_SCHEDULES") == "" {
		t.Setenv("LIMIT_SCHEDULES", "10")
	}
	client := redistest.Client(t)
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		h := harness(client)
		h.Store.(*Store).hasher = newKeyHasher(secret)
		h.Store = guard.New(h.Store, &guard.Options{Slow: time.Minute}) // the machine may be loaded
		test(t, h)
	})
}
