package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// TestSharers counts the processes that share their keys, on one server and in a Cluster.
func TestSharers(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		server := redistest.Launch(t, user("zadd", "hset", "sadd", "keys", "scan", "info")...)
		client := asUser(t, server.Addr)
		first, second := New(client, &patient), New(client, &Options{Spread: 3, Timeout: patient.Timeout})
		other, same := New(client, &Options{Prefix: "other", Timeout: patient.Timeout}), New(client, &patient) // of the process of the first
		second.id = "second"
		for i, of := range []struct {
			*Store
			want int
		}{{first, 1}, {same, 1}, {second, 2}, {other, 1}, {first, 2}} {
			n := must.Get(of.Sharers(t.Context()))(t)
			assert.Equal(t, of.want, n, "call %d", i)
		}
		life := must.Get(client.PTTL(t.Context(), "limit:sharers").Result())(t)
		assert.InDelta(t, sharerLife, life, float64(10*time.Second))

		// One has not called for long, and one is of a clock that was ahead.
		require.NoError(t, client.Set(t.Context(), "limit:sharers", "1600000000 a1\n9600000000 b2\n", 0).Err())
		n := must.Get(first.Sharers(t.Context()))(t)
		assert.Equal(t, 1, n)
		require.NoError(t, client.Set(t.Context(), "limit:sharers", "something else", 0).Err())
		n = must.Get(first.Sharers(t.Context()))(t)
		assert.Equal(t, 1, n)
	})
	t.Run("cluster", func(t *testing.T) {
		client := redistest.Cluster(t)
		for i := range 3 {
			store := New(client, &Options{Prefix: "sharers", Timeout: time.Minute})
			store.id = string(rune('a' + i))
			n := must.Get(store.Sharers(t.Context()))(t)
			assert.Equal(t, i+1, n)
		}
	})
}
