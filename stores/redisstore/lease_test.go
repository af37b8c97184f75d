package redisstore

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

func held(rule, key string, limit int64, life time.Duration, id uint64) core.Charge {
	return core.Charge{Rule: rule, Key: key, Cost: 1, ID: id,
		Quota: core.Quota{Algorithm: core.Concurrency, Limit: limit, Window: life.Microseconds()}}
}

// TestLeasesAreOneCall tells how often Redis is asked, also after it has
// forgotten its scripts.
func TestLeasesAreOneCall(t *testing.T) {
	client := redistest.Client(t)
	require.NoError(t, client.ScriptFlush(t.Context()).Err()) // of a server that is not the test's alone
	calls, questions := 0, 0
	before(client, is("info"), func(redis.Cmder) { questions++ })
	before(client, isTake, func(redis.Cmder) { calls++ })
	store := New(client, &patient)
	charges := []core.Charge{held("a", "k", 5, time.Minute, 1), held("b", "k", 5, time.Minute, 1), held("c", "", 5, time.Minute, 1)}
	for range 3 {
		storetest.MustTake(t, store, charges...)
	}
	for round, want := range [][2]int{{2, 1}, {1, 0}} { // the first one loads the script
		recent(t, store)
		calls, questions = 0, 0
		got := must.Get(storetest.Renew(t.Context(), store, "p", charges))(t)
		assert.Equal(t, []bool{true, true, true}, got)
		assert.Equal(t, want, [2]int{calls, questions}, "round %d", round)
	}
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	store = New(client, &patient)
	for _, want := range [][2]int{{2, 1}, {1, 0}} {
		recent(t, store)
		calls, questions = 0, 0
		require.NoError(t, storetest.Release(t.Context(), store, "p", charges))
		assert.Equal(t, want, [2]int{calls, questions})
	}
	assert.Empty(t, client.Keys(t.Context(), "limit:1:{*").Val(), "nothing is left of what is released")
}

func TestLeasesExpire(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	lives := func(charge core.Charge) time.Duration {
		return client.PTTL(t.Context(), lua.Key("limit", named("p", charge.Rule, charge.Key))).Val()
	}
	long, short := held("r", "k", 5, 10*time.Minute, 1), held("r", "k", 5, time.Minute, 2)
	storetest.MustTake(t, store, long)
	assert.InDelta(t, 10*time.Minute, lives(long), float64(10*time.Second))
	got := must.Get(storetest.Renew(t.Context(), store, "p", []core.Charge{long}))(t)
	assert.Equal(t, []bool{true}, got)
	assert.InDelta(t, 10*time.Minute, lives(long), float64(10*time.Second))
	storetest.MustTake(t, store, short) // the first one keeps its life
	assert.InDelta(t, 10*time.Minute, lives(long), float64(10*time.Second))
	require.NoError(t, storetest.Release(t.Context(), store, "p", []core.Charge{long}))
	assert.InDelta(t, time.Minute, lives(long), float64(10*time.Second))
}

// TestForeignLeases puts values under keys of leases that are none: each call
// that needs them fails, and leaves them and its neighbours alone.
func TestForeignLeases(t *testing.T) {
	client := redistest.Client(t)
	ctx := t.Context()
	store := New(client, &patient)
	ends := func(b string) string { return strings.Repeat(b, 7) }
	values := []string{"", "j", "j123", "x", "a12345671234", "j" + strings.Repeat("\xff", 20), "j" + strings.Repeat("\x00", 21),
		"j" + strings.Repeat("\xff", 21), "j\x00\x00\x01" + strings.Repeat("\x00", 18), "j\x00\x00\x01",
		// leases whose sum is wrong, or whose order
		"j\x00\x00\x09" + ends("\xff") + "12345678\x00\x00\x01", "j\x00\x00\x00" + ends("\xff") + "12345678\x00\x00\x01",
		"j\x00\x00\x02" + ends("\xff") + "12345678\x00\x00\x01" + ends("\x00") + "12345679\x00\x00\x01"}
	key := func(i int) string { return fmt.Sprint("bad", i) }
	for i, value := range values {
		require.NoError(t, client.Set(ctx, lua.Key("limit", named("p", "r", key(i))), value, 0).Err())
	}
	require.NoError(t, client.HSet(ctx, lua.Key("limit", named("p", "r", key(len(values)))), "f", "v").Err())
	for i := range len(values) + 1 {
		charges := []core.Charge{held("r", key(i), 5, time.Minute, 1), held("good", key(i), 5, time.Minute, 1)}
		before := client.Dump(ctx, lua.Key("limit", named("p", "r", key(i)))).Val()
		_, err := storetest.Take(ctx, store, "p", charges)
		if err == nil { // bytes that happen to be leases are some
			must.Get(storetest.Renew(ctx, store, "p", charges))(t)
			require.NoError(t, storetest.Release(ctx, store, "p", charges))
			continue
		}
		assert.ErrorIs(t, err, lua.ErrValue, "%d", i)
		must.Get(storetest.Take(ctx, store, "p", charges[1:]))(t)
		got, err := storetest.Renew(ctx, store, "p", charges)
		assert.ErrorIs(t, err, lua.ErrValue)
		assert.Equal(t, []bool{false, true}, got, "the other is renewed")
		assert.ErrorIs(t, storetest.Release(ctx, store, "p", charges), lua.ErrValue)
		got = must.Get(storetest.Renew(ctx, store, "p", charges[1:]))(t)
		assert.Equal(t, []bool{false}, got, "the other is released")
		assert.Equal(t, before, client.Dump(ctx, lua.Key("limit", named("p", "r", key(i)))).Val())
	}
}

// TestHiddenLeases releases the last of some leases, behind which there is one
// that has ended, or more than the sum of their units.
func TestHiddenLeases(t *testing.T) {
	client := redistest.Client(t)
	ctx := t.Context()
	store := New(client, &patient)
	lease := func(ends time.Time, id byte) string {
		b := binary.BigEndian.AppendUint64(nil, uint64(ends.UnixMicro()))
		return string(b[1:]) + strings.Repeat("\x00", 7) + string(id) + "\x00\x00\x01"
	}
	soon, past := time.Now().Add(30*time.Second), time.Now().Add(-30*time.Second)
	for _, value := range []string{
		"j\x00\x00\x03" + lease(soon, 3) + lease(past, 2) + lease(soon, 1),
		"j\x00\x00\x01" + lease(soon, 2) + lease(soon, 1),
		"j\x00\x00\x02" + lease(soon, 1),
	} {
		key := lua.Key("limit", named("p", "r", "k"))
		require.NoError(t, client.Set(ctx, key, value, time.Minute).Err())
		require.ErrorIs(t, storetest.Release(ctx, store, "p", []core.Charge{held("r", "k", 5, time.Minute, 1)}), lua.ErrValue)
		require.Equal(t, value, client.Get(ctx, key).Val())
	}
	// More units than a list can have, of a lease that is renewed.
	many := lease(soon, 1)[:15] + "\xcc\x00\x02"
	key, value := lua.Key("limit", named("p", "r", "k")), "j\x00\x00\x03"+many+many
	require.NoError(t, client.Set(ctx, key, value, time.Minute).Err())
	_, err := storetest.Renew(ctx, store, "p", []core.Charge{held("r", "k", 5, time.Minute, 1)})
	require.ErrorIs(t, err, lua.ErrValue)
	require.Equal(t, value, client.Get(ctx, key).Val())
}
