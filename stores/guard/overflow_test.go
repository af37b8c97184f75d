package guard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

const hour = 3600 * sec

// small returns guards around one store, each with room for 256 keys.
func small(instances int, now *atomic.Int64) (guards []*Store, store *memstore.Store) {
	store = at(now)
	for range instances {
		own := memstore.New(&memstore.Options{MaxKeys: 256, Now: now.Load})
		guards = append(guards, newStore(store, &Options{Instances: instances, Log: nowhere}, own, now.Load))
	}
	return guards, store
}

func once(t *testing.T, s *Store, key string, q core.Quota) core.Decision {
	t.Helper()
	return storetest.MustTake(t, s, core.Charge{Rule: "r", Key: key, Quota: q, Cost: 1})
}

// flood fills the memory of s with keys of its own.
func flood(t *testing.T, s *Store, q core.Quota) {
	t.Helper()
	for i := range 12 * 256 {
		once(t, s, fmt.Sprint("flood ", i), q)
	}
	require.True(t, s.overflows(s.now()))
}

// TestFloodFillsNoRedis sends 1,000,000 random keys to a guard with room for 4,096 in front of a
// real Redis, and 15,000 to one with room for 1,024 in short runs.
func TestFloodFillsNoRedis(t *testing.T) {
	keys, room := 1_000_000, 4096
	if testing.Short() || race.Enabled {
		keys, room = 15_000, 1024
	}
	client := redistest.Real(t)
	s := New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &Options{MaxKeys: room, Slow: time.Minute})
	quota := core.Quota{Limit: 5, Window: hour}
	for i := range 6 {
		require.Equal(t, i < 5, once(t, s, "limited", quota).Allowed)
	}
	require.True(t, once(t, s, "known", quota).Allowed)

	const callers = 32
	var admitted, overflow, gained, known atomic.Int64
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(caller)))
			for i := range keys / callers {
				d, err := core.Take(t.Context(), s, storetest.Of("p", core.Charge{Rule: "r", Key: fmt.Sprint(random.Uint64()), Quota: quota, Cost: 1}))
				if !assert.NoError(t, err) {
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
				if d.Mode == core.ModeOverflow {
					overflow.Add(1)
				}
				if i%1000 == 0 {
					d, err = core.Take(t.Context(), s, storetest.Of("p", core.Charge{Rule: "r", Key: "limited", Quota: quota, Cost: 1}))
					if err != nil || d.Allowed {
						gained.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	for range 4 {
		if d := once(t, s, "known", quota); d.Allowed && d.Mode == core.ModeExact {
			known.Add(1)
		}
	}
	size := client.DBSize(t.Context()).Val()
	t.Logf("%d keys: %d admitted, %d in overflow, %d keys in Redis", keys, admitted.Load(), overflow.Load(), size)
	assert.LessOrEqual(t, size, int64(room+256+10*callers), "keys, overflow quotas, and keys in flight when the memory became full")
	assert.Greater(t, size, int64(room*3/4))
	assert.Zero(t, gained.Load())
	assert.EqualValues(t, 4, known.Load(), "known keys are not affected")
	assert.Greater(t, overflow.Load(), int64(keys)*9/10)

	names := client.Keys(t.Context(), "*").Val()
	shared := 0
	for _, name := range names {
		if strings.Contains(name, "r@"+overflowVariant+":") {
			shared++
		}
	}
	assert.NotZero(t, shared)
	assert.LessOrEqual(t, shared, 256)
}

// TestLeavingSharedKeys has keys leave overflow quotas at random, in every algorithm. With one
// instance, no key ever gets more than a store without MaxKeys would admit.
func TestLeavingSharedKeys(t *testing.T) {
	race.Skip(t)
	for _, q := range []core.Quota{
		{Limit: 3, Window: 60 * sec},
		{Algorithm: core.SlidingCells, Limit: 3, Window: 60 * sec, Cells: 6},
		{Algorithm: core.TokenBucket, Limit: 3, Window: 60 * sec, Burst: 3},
		{Algorithm: core.TokenBucket, Limit: 3, Window: 60 * sec, Burst: 3, Missing: 1},
		{Algorithm: core.LeakyBucket, Limit: 3, Window: 60 * sec, Burst: 3},
		{Algorithm: core.Queue, Limit: 3, Window: 60 * sec, Burst: 2},
	} {
		t.Run(fmt.Sprint(q.Algorithm, q.Missing), func(t *testing.T) {
			overflows, own := 0, 0
			promised := q
			promised.Missing = 0 // a bucket that many share is new once
			for seed := range uint64(8) {
				random := rand.New(rand.NewPCG(seed, 1))
				now := new(atomic.Int64)
				now.Store(1000 * hour)
				guards, _ := small(1, now)
				s := guards[0]
				exact := at(now) // knows what each key has been admitted
				for i := range 3000 {
					now.Add(random.Int64N(int64(2 * sec / (1 + seed%4))))
					if i > 1000 && i < 1800 { // a flood, that fills the memory for a while
						once(t, s, fmt.Sprint("flood ", random.Uint64()), q)
					}
					if i == 1000 {
						flood(t, s, q)
					}
					key := fmt.Sprint("k", random.IntN(40))
					d := once(t, s, key, q)
					if d.Mode == core.ModeOverflow {
						overflows++
					} else {
						own++
					}
					if d.Allowed {
						truth := storetest.MustTake(t, exact, core.Charge{Rule: "r", Key: key, Quota: promised, Cost: 1})
						require.True(t, truth.Allowed, "seed %d, request %d: %s gets more than its limit", seed, i, key)
					}
				}
			}
			assert.NotZero(t, overflows)
			assert.NotZero(t, own)
		})
	}
}

// TestOverflowOfSeveral checks what a key gets from two instances, if one has no room for it:
// nothing if it is over its limit, and otherwise at most one more limit.
func TestOverflowOfSeveral(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(1000 * hour)
	q := core.Quota{Limit: 4, Window: hour}
	apart := core.Quota{Limit: 4, Window: hour + 1} // "other" and "k" never share an overflow quota
	guards, store := small(2, now)
	a, b := guards[0], guards[1]
	flood(t, b, core.Quota{Limit: 4, Window: 2 * hour}) // shares other keys than q
	total := 0
	count := func(d core.Decision) {
		if d.Allowed {
			total++
		}
	}
	for range 3 {
		count(once(t, a, "k", q))
	}
	for range 5 {
		count(once(t, b, "k", q))
	}
	assert.Equal(t, 4, total, "b finds it in the store")
	for range 5 {
		count(once(t, b, "other", apart))
	}
	assert.Equal(t, 8, total)
	for range 5 {
		count(once(t, a, "other", apart))
	}
	assert.Equal(t, 12, total, "as documented: a limit by itself, and one by the shared key")

	look := storetest.MustTake(t, store, shared(core.Charge{Rule: "r", Key: "other", Quota: apart}))
	assert.Zero(t, look.Outcomes()[0].Remaining)
}

// TestOverflowReturns returns units that were taken in overflow, if they can only have come from
// a quota of their own, and releases leases wherever they are.
func TestOverflowReturns(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(1000 * hour)
	guards, store := small(1, now)
	s := guards[0]
	q := core.Quota{Limit: 4, Window: hour}
	flood(t, s, q)
	fresh := core.Quota{Limit: 4, Window: 2 * hour}
	charges := storetest.Of("p", core.Charge{Rule: "all", Quota: q, Cost: 2}, core.Charge{Rule: "r", Key: "new", Quota: fresh, Cost: 2})
	d := storetest.MustTake(t, s, charges...)
	require.True(t, d.Allowed)
	require.Equal(t, core.ModeOverflow, d.Mode)
	var returns []core.Return
	for i, o := range d.Outcomes() {
		returns = append(returns, core.Return{Charge: charges[i], At: d.At, Remaining: o.Remaining, ResetAfter: o.ResetAfter, Mode: d.Mode})
	}
	given := must.Get(s.Return(t.Context(), returns))(t)
	assert.Equal(t, []int64{2, 0}, []int64{given[0].Units, given[1].Units})

	lease := core.Charge{Rule: "l", Key: "new", Cost: 1, ID: 7, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: 60 * sec}}
	take := func() bool {
		d := storetest.MustTake(t, s, lease)
		return d.Allowed
	}
	require.True(t, take())
	for range 10 { // for longer than a lease lives that is not renewed
		now.Add(20 * sec)
		held := must.Get(s.Renew(t.Context(), storetest.Of("p", lease)))(t)
		require.Equal(t, []bool{true}, held)
		there := must.Get(store.Renew(t.Context(), storetest.Of("p", shared(lease))))(t)
		require.Equal(t, []bool{true}, there, "it is renewed where it was taken")
		lease.ID++
		require.False(t, take())
		lease.ID--
	}
	require.NoError(t, s.Release(t.Context(), storetest.Of("p", lease)))
	lease.ID = 9
	assert.True(t, take())
}

// TestRenewedInOverflow renews a lease in an overflow quota for longer than any
// other unit there counts.
func TestRenewedInOverflow(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(1000 * hour)
	guards, store := small(1, now)
	s := guards[0]
	for i := range 12 * 256 { // without the guard, so it does not know
		storetest.MustTake(t, s.own, core.Charge{Rule: "r", Key: fmt.Sprint(i), Cost: 1, Quota: core.Quota{Limit: 4, Window: hour}})
	}
	lease := core.Charge{Rule: "l", Cost: 1, ID: 7, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: 60 * sec}}
	take := func(key string) core.Decision {
		lease.Key = key
		return storetest.MustTake(t, s, lease)
	}
	for i := 0; !s.overflows(s.now()); i++ {
		take(fmt.Sprint("first ", i)) // by its own key in the store, until the guard knows
	}
	for i := 0; ; i++ {
		if d := take(fmt.Sprint("second ", i)); d.Allowed && d.Overflow(0) == core.SharedQuota {
			break
		}
	}
	for range 10 {
		now.Add(20 * sec)
		held := must.Get(s.Renew(t.Context(), storetest.Of("p", lease)))(t)
		require.Equal(t, []bool{true}, held)
		held = must.Get(store.Renew(t.Context(), storetest.Of("p", shared(lease))))(t)
		require.Equal(t, []bool{true}, held)
	}
}

// TestRefusedTogether checks that a request that another rule refuses takes nothing from
// overflow quotas, in memory or in the store.
func TestRefusedTogether(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(1000 * hour)
	guards, _ := small(1, now)
	s := guards[0]
	flood(t, s, core.Quota{Limit: 4, Window: 2 * hour})
	q := core.Quota{Limit: 4, Window: hour}
	charges := []core.Charge{{Rule: "all", Quota: q, Cost: 4}, {Rule: "r", Key: "new", Quota: q, Cost: 1}}
	for i := range 10 {
		d := storetest.MustTake(t, s, charges...)
		require.Equal(t, i == 0, d.Allowed)
	}
	d := once(t, s, "new", q)
	assert.Equal(t, int64(2), d.Outcomes()[0].Remaining)
}

// TestRoomInBetween has the memory get room for a key while the store charges an overflow
// quota.
func TestRoomInBetween(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(1000 * hour)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{}, memstore.New(&memstore.Options{MaxKeys: 256, Now: now.Load}), now.Load)
	flooded := core.Quota{Limit: 4, Window: 2 * hour}
	flood(t, s, flooded)
	q := core.Quota{Limit: 4, Window: hour}
	calls := 0
	f.first = func() {
		if calls++; calls == 2 { // the look was the first
			for i := range 12 * 256 {
				require.NoError(t, s.own.Reset(t.Context(), []core.Charge{{Policy: "p", Rule: "r", Key: fmt.Sprint("flood ", i)}}))
			}
		}
	}
	overflows := func() bool {
		d := storetest.MustTake(t, s.own, core.Charge{Rule: "r", Key: "new", Quota: q})
		return d.Overflow(0) == core.SharedQuota
	}
	require.True(t, overflows())
	admitted := 0
	for range 6 {
		if d := once(t, s, "new", q); d.Allowed {
			admitted++
		}
	}
	require.Greater(t, calls, 2)
	assert.False(t, overflows())
	assert.Equal(t, 4, admitted)
}

// TestRoomBesideASharedQuota has the memory get room for a key while the store charges an
// overflow quota, which other keys of the rule have used recently. The key must not
// get more than its limit when its units no longer count there.
func TestRoomBesideASharedQuota(t *testing.T) {
	now := new(atomic.Int64)
	s, f := full(t, now)
	q := core.Quota{Limit: 4, Window: hour}
	require.Equal(t, core.ModeOverflow, once(t, s, "other", q).Mode)
	now.Add(hour / 2)
	key := ""
	for i := 0; key == ""; i++ { // one that shares with the other in memory
		look := core.Charge{Rule: "r", Key: fmt.Sprint("new ", i), Quota: q}
		d := storetest.MustTake(t, s.own, look)
		if d.Overflow(0) == core.SharedQuota && d.Outcomes()[0].Remaining == 3 {
			key = look.Key
		}
	}
	calls := 0
	f.first = func() {
		if calls++; calls == 2 { // the look was the first
			for i := range 12 * 256 {
				require.NoError(t, s.own.Reset(t.Context(), []core.Charge{{Policy: "p", Rule: "r", Key: fmt.Sprint("flood ", i)}}))
			}
		}
	}
	admitted := 0
	take := func() {
		for range 6 {
			if once(t, s, key, q).Allowed {
				admitted++
			}
		}
	}
	take()
	require.Greater(t, calls, 2)
	require.Equal(t, 3, admitted, "the fourth may have been taken by the other")
	now.Add(hour/2 - 1)
	take()
	require.Equal(t, 3, admitted)
	now.Add(1)
	take()
	assert.Equal(t, 4, admitted)
}
