package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
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

// everyAlgorithm returns a charge of 3 units for a rule of each algorithm.
func everyAlgorithm(key string) []core.Charge {
	var charges []core.Charge
	for _, q := range []core.Quota{
		{Limit: 10}, {Limit: 500},
		{Algorithm: core.FixedWindow, Limit: 10}, {Algorithm: core.FixedWindow, Limit: 10, Aligned: true},
		{Algorithm: core.FixedWindow, Limit: 10, Calendar: core.Calendar{Unit: core.Month, Zone: berlin}},
		{Algorithm: core.SlidingCells, Limit: 10, Cells: 10}, {Algorithm: core.SlidingCounter, Limit: 10},
		{Algorithm: core.TokenBucket, Limit: 10, Burst: 10}, {Algorithm: core.TokenBucket, Limit: 10, Burst: 10, Missing: 2},
		{Algorithm: core.LeakyBucket, Limit: 10, Burst: 10}, {Algorithm: core.Queue, Limit: 10, Burst: 9},
	} {
		q.Window = 3600_000_000
		charges = append(charges, core.Charge{Rule: fmt.Sprint("r", len(charges)), Key: key, Quota: q, Cost: 3})
	}
	return charges
}

func admit(t *testing.T, store core.Store, policy string, charges []core.Charge) []core.Return {
	t.Helper()
	d := must.Get(storetest.Take(t.Context(), store, policy, charges))(t)
	require.True(t, d.Allowed)
	var list []core.Return
	for i, o := range d.Outcomes() {
		list = append(list, core.Return{Charge: charges[i], At: d.At, Remaining: o.Remaining, ResetAfter: o.ResetAfter})
	}
	return list
}

// TestReturnByTheServersClock takes, gives back and resets on a store as
// programs have it.
func TestReturnByTheServersClock(t *testing.T) {
	client := redistest.Client(t)
	var calls atomic.Int64
	before(client, isTake, func(redis.Cmder) { calls.Add(1) })
	store := New(client, &patient)
	charges := everyAlgorithm("k")
	first := admit(t, store, "p", charges)
	list := admit(t, store, "p", charges)
	giveBack := func(list []core.Return) []int64 {
		given := must.Get(storetest.Return(t.Context(), store, "p", list))(t)
		ttls(t, client, 2*time.Hour+time.Second)
		return given
	}
	for i := range list {
		list[i].Cost = 1
	}
	assert.Equal(t, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, giveBack(list), "loads the script")
	calls.Store(0)
	for i := range list {
		list[i].Cost = 2
	}
	list[10].ResetAfter -= 3600_000_000 / 10 // the line has become a turn shorter
	assert.Equal(t, []int64{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, giveBack(list))
	assert.EqualValues(t, 1, calls.Load(), "one call for all rules")
	giveBack(first)

	d := storetest.MustTake(t, store, charges...)
	assert.True(t, d.Allowed)
	for i, o := range d.Outcomes() {
		want := map[int]int64{1: 497, 10: 6}[i] // the first turn of the queue has come
		if want == 0 {
			want = 7
		}
		if i == 8 {
			want = 5 // two were missing before
		}
		assert.Equal(t, want, o.Remaining, "%+v", charges[i].Quota)
	}
	for _, c := range charges {
		require.NoError(t, storetest.Reset(t.Context(), store, "p", c.Rule, c.Key))
	}
	assert.Empty(t, client.Keys(t.Context(), "limit:1:{*").Val())
	assert.Empty(t, client.Keys(t.Context(), "limit:1:returned:*").Val())
}

// ttls tells that every key expires, and when at the latest.
func ttls(t *testing.T, client *redis.Client, most time.Duration) {
	t.Helper()
	for _, key := range client.Keys(t.Context(), "*").Val() {
		ttl := client.PTTL(t.Context(), key).Val()
		assert.True(t, 0 < ttl && ttl <= max(most, 32*24*time.Hour), "%s lives %v", key, ttl)
	}
}

// TestReturnKeepsTTL gives back by a quota with a shorter window than the key
// is kept for, and to keys that have lost their TTL.
func TestReturnKeepsTTL(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	for _, r := range admit(t, store, "p", everyAlgorithm("k")) {
		key := lua.Key("limit", named("p", r.Rule, r.Key))
		before := client.PTTL(t.Context(), key).Val()
		r.Cost = 1
		shorter := r
		shorter.Quota.Window /= 2
		must.Get(storetest.Return(t.Context(), store, "p", []core.Return{shorter}))(t)
		require.Greater(t, client.PTTL(t.Context(), key).Val(), before-10*time.Second, "%+v", shorter.Quota)
	}
	for _, r := range admit(t, store, "q", everyAlgorithm("k")) {
		key := lua.Key("limit", named("q", r.Rule, r.Key))
		r.Cost = 1
		require.NoError(t, client.Persist(t.Context(), key).Err())
		given := must.Get(storetest.Return(t.Context(), store, "q", []core.Return{r}))(t)
		require.EqualValues(t, 1, given[0], "%+v", r.Quota)
		require.Positive(t, client.PTTL(t.Context(), key).Val(), "%+v", r.Quota)
	}
}

func TestReturnToForeignValues(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	charges := everyAlgorithm("k")
	good := admit(t, store, "p", charges)
	for i := range good {
		key := lua.Key("limit", named("p", good[i].Rule, good[i].Key))
		value := client.Get(t.Context(), key).Val()
		for _, foreign := range []string{"", "x", "hello, world: 1234567890", value[:len(value)-1], "z" + value[1:]} {
			require.NoError(t, client.Set(t.Context(), key, foreign, time.Hour).Err())
			other := client.Get(t.Context(), lua.Key("limit", named("p", good[(i+1)%len(good)].Rule, "k"))).Val()
			given, err := storetest.Return(t.Context(), store, "p", []core.Return{good[(i+1)%len(good)], good[i]})
			require.ErrorIs(t, err, lua.ErrValue, "%+v, %q", good[i].Quota, foreign)
			require.ErrorContains(t, err, key)
			require.Nil(t, given)
			require.Equal(t, foreign, client.Get(t.Context(), key).Val())
			require.Equal(t, other, client.Get(t.Context(), lua.Key("limit", named("p", good[(i+1)%len(good)].Rule, "k"))).Val(), "its neighbour")
		}
		require.NoError(t, client.Del(t.Context(), key).Err())
		require.NoError(t, client.HSet(t.Context(), key, "f", "v").Err())
		_, err := storetest.Return(t.Context(), store, "p", good[i:i+1])
		require.ErrorIs(t, err, lua.ErrValue)
		require.Equal(t, "hash", client.Type(t.Context(), key).Val())
		require.NoError(t, client.Del(t.Context(), key).Err())
		require.NoError(t, client.Set(t.Context(), key, value, time.Hour).Err())
	}
	for _, i := range []int{7, 9} {
		remembered := lua.ReturnedKey("limit", named("p", good[i].Rule, "k"))
		require.NoError(t, client.Set(t.Context(), remembered, "x", time.Hour).Err())
		_, err := storetest.Return(t.Context(), store, "p", good[i:i+1])
		require.ErrorIs(t, err, lua.ErrValue)
		require.NoError(t, client.Del(t.Context(), remembered).Err())
		require.NoError(t, client.HSet(t.Context(), remembered, "f", "v").Err())
		_, err = storetest.Return(t.Context(), store, "p", good[i:i+1])
		require.ErrorIs(t, err, lua.ErrValue)
	}
}

// TestReturnIsSentOnce holds that a lost reply does not give back twice.
func TestReturnIsSentOnce(t *testing.T) {
	direct := redistest.Client(t)
	var lose atomic.Int64
	client := lossyClient(t, direct, &lose)
	store := New(client, &patient)
	one := admit(t, store, "p", []core.Charge{{Rule: "r", Key: "k", Quota: core.Quota{Limit: 100, Window: 60_000_000}, Cost: 10}})
	one[0].Cost = 1
	_, err := storetest.Return(t.Context(), store, "p", one) // loads the script
	require.NoError(t, err)
	lose.Store(1)
	_, err = storetest.Return(t.Context(), store, "p", one)
	require.Error(t, err)
	d := storetest.MustTake(t, New(direct, &patient), core.Charge{Rule: "r", Key: "k", Quota: one[0].Quota})
	assert.EqualValues(t, 92, d.Outcomes()[0].Remaining)
}

func TestReturnEnds(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	list := admit(t, store, "p", everyAlgorithm("k"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := storetest.Return(ctx, store, "p", list)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, storetest.Reset(ctx, store, "p", "r0", "k"), context.Canceled)
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}))
	hurried := New(client, &Options{Timeout: time.Millisecond})
	_, err = storetest.Return(t.Context(), hurried, "p", list)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorIs(t, storetest.Reset(t.Context(), hurried, "p", "r0", "k"), core.ErrUnavailable)
}

// TestReturnOnCluster gives back on policies all over a cluster.
func TestReturnOnCluster(t *testing.T) {
	store := New(redistest.Cluster(t), &patient)
	for i := range 30 {
		policy := fmt.Sprint("POST /route/", i)
		for _, key := range []string{"", "}", "{x}", "a}:b", "\x00\r\n"} {
			charges := everyAlgorithm(key)
			list := admit(t, store, policy, charges)
			given := must.Get(storetest.Return(t.Context(), store, policy, list))(t)
			assert.Equal(t, []int64{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2}, given)
			for _, c := range charges {
				require.NoError(t, storetest.Reset(t.Context(), store, policy, c.Rule, c.Key))
			}
		}
	}
}

// TestReturnOfNothing gives back what a look took to a log with a unit of 2^32 µs ago, whose tick is
// like that of a second ago: a log is only known to have no such unit when one has just been taken.
func TestReturnOfNothing(t *testing.T) {
	now := start - start%(1<<32) - 835_000_000
	store := at(redistest.Client(t), &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Limit: 8, Window: 3600_000_000}}
	storetest.MustTake(t, store, c)
	now += 845_000_000
	storetest.MustTake(t, store, c)
	now += 1<<32 - 844_000_000
	c.Cost = 0
	d := storetest.MustTake(t, store, c)
	given := must.Get(store.Return(t.Context(), []core.Return{d.Return(0, c)}))(t)
	require.Equal(t, d.Outcomes()[0], given[0].Outcome)
}

// TestReturnPanics has a hook of the client panic. A timer of package prefetch gives back too: there
// a panic would end the program.
func TestReturnPanics(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	list := admit(t, store, "p", []core.Charge{charge("r", "k", 5, time.Minute)})
	panics := true
	before(client, isReturn, func(redis.Cmder) {
		if panics {
			panic("hook")
		}
	})
	_, err := store.Return(t.Context(), list)
	require.ErrorIs(t, err, errPanicked)
	panics = false
	must.Get(store.Return(t.Context(), list))(t)
}
