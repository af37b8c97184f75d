package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

func TestTimes(t *testing.T) {
	n := 300
	if testing.Short() || race.Enabled {
		n = 50
	}
	storetest.Lives(t, harness(redistest.Client(t)), storetest.Times, 0, n)
}

// TestRingExpires charges a ring at the beginning and at the end of an interval as long as
// its window. Its key is prolonged only once in each, and so must live for two windows.
func TestRingExpires(t *testing.T) {
	client := redistest.Client(t)
	const second = 1_000_000
	now := start - start%(1000*second)
	store, pass := at(client, &now), elapse(client)
	q := core.Quota{Limit: 200, Window: 1000 * second}
	take := func(n int64) bool {
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "r", Key: "k", Quota: q, Cost: n}}))(t)
		return d.Allowed
	}
	step := func(micros int64) {
		now += micros
		pass(micros)
	}
	require.True(t, take(140), "a ring")
	step(980 * second)
	require.True(t, take(60))
	step(20 * second)
	require.True(t, take(140), "what was taken first has left")
	step(985 * second) // in the same interval, and so it does not prolong the key
	require.True(t, take(60))
	require.Equal(t, "c", client.GetRange(t.Context(), lua.Key("limit", named("p", "r", "k")), 0, 0).Val())
	step(900 * second)
	assert.False(t, take(141), "60 were taken 900 s ago")
	assert.True(t, take(140))
}

// TestRingOfAnotherVersion has versions with a smaller limit or a shorter window write a
// ring where it is, whether their limits need rings or not.
func TestRingOfAnotherVersion(t *testing.T) {
	client := redistest.Client(t)
	now := start
	store := at(client, &now)
	key := lua.Key("limit", named("p", "r", "k"))
	take := func(q core.Quota, n int64) core.Outcome {
		t.Helper()
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "r", Key: "k", Quota: q, Cost: n}}))(t)
		require.True(t, d.Allowed)
		return d.Outcomes()[0]
	}
	second := int64(time.Second / time.Microsecond)
	large := core.Quota{Limit: 1000, Window: 5000 * second}
	take(large, 500)
	head := client.GetRange(t.Context(), key, 0, 9).Val()
	for _, q := range []core.Quota{{Limit: 900, Window: large.Window}, {Limit: 900, Window: second}, {Limit: 100, Window: second}, {Limit: 1000, Window: second}} {
		now += second
		left := q.Limit - 1
		if q.Window == large.Window {
			left = 399
		}
		assert.Equal(t, left, take(q, 1).Remaining, q)
		assert.Equal(t, head, client.GetRange(t.Context(), key, 0, 9).Val(), q)
	}
	assert.Equal(t, int64(1000-504-1), take(large, 1).Remaining)
	assert.InDelta(t, 2*5000*time.Second+time.Hour, client.PTTL(t.Context(), key).Val(), float64(time.Minute))
	take(core.Quota{Limit: 1500, Window: second}, 1)
	assert.Equal(t, int64(1000-506-1), take(large, 1).Remaining)
	assert.NotEqual(t, head, client.GetRange(t.Context(), key, 0, 9).Val(), "laid anew for a larger limit")
}
