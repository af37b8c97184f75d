package guard

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// barring returns charges of a rule and a ban after three refusals.
func barring(limit int64) []core.Charge {
	return []core.Charge{charge("r", limit, core.Local),
		{Rule: "ban", Key: "k", Quota: core.Quota{Algorithm: core.Ban, Limit: 3, Window: 60 * sec, Bar: 60 * sec}}}
}

// TestBanAcrossFailure bars a key by local strikes, for as long as the bar lasts and
// whatever the store says, and by the store's own strikes.
func TestBanAcrossFailure(t *testing.T) {
	f := newFleet(1, nil)
	take := func(rule bool) core.Decision {
		t.Helper()
		d := storetest.MustTake(t, f.guards[0], barring(1)...)
		require.Equal(t, rule, d.Allowed)
		return d
	}
	f.cut[0].fail(errDown)
	take(true)
	for range 3 {
		take(false)
	}
	d := take(false)
	assert.EqualValues(t, 60*sec, d.Outcomes()[1].RetryAfter)
	f.cut[0].fail(nil)
	f.now.Add(20 * sec)
	d = take(false)
	assert.Zero(t, d.Outcomes()[1].Remaining)
	f.now.Add(40 * sec)
	take(true)

	for range 3 {
		take(false)
	}
	f.now.Add(20 * sec)
	d = take(false)
	assert.EqualValues(t, 40*sec, d.Outcomes()[1].RetryAfter, "by the store, or by the memory")
}

// TestBanOfSeveral admits more than a share by one instance. The memory, which would
// refuse that, counts no strikes.
func TestBanOfSeveral(t *testing.T) {
	f := newFleet(3, nil)
	for i := range 9 {
		d := storetest.MustTake(t, f.guards[0], barring(9)...)
		require.True(t, d.Allowed, i)
	}
	f.now.Add(10 * sec)
	f.cut[0].fail(errDown)
	d := storetest.MustTake(t, f.guards[0], barring(9)...)
	require.True(t, d.Allowed, "nothing was refused")
	assert.EqualValues(t, 3, d.Outcomes()[1].Remaining)
}

// TestOverflowBarsNoClient floods guards without room for new keys, with a store that
// works and with one that fails. A ban refuses no new client, the store gets no bar that
// clients share, and keys that the store has barred stay barred.
func TestOverflowBarsNoClient(t *testing.T) {
	race.Skip(t)
	for _, fails := range []bool{false, true} {
		now := new(atomic.Int64)
		now.Store(1000 * hour)
		f := &frail{Store: at(now)}
		// Each of the 256 shards has room for two keys, so for both of a request.
		own := memstore.New(&memstore.Options{MaxKeys: 512, Now: now.Load})
		s := newStore(f, &Options{Log: nowhere}, own, now.Load)
		request := func(key string) core.Decision {
			charges := barring(2)
			charges[0].Key, charges[1].Key = key, key
			return storetest.MustTake(t, s, charges...)
		}
		barred := func(d core.Decision) bool { return !d.Outcomes()[1].Fits() }
		if fails {
			f.fail(errDown)
		}
		for range 5 {
			request("early")
		}
		require.True(t, barred(request("early")))
		modes := make(map[core.Overflow]int)
		for range 9 {
			for i := range 600 {
				d := request(fmt.Sprint("flood ", i))
				modes[d.Overflow(1)]++
			}
		}
		require.Greater(t, modes[core.SharedQuota], 1000)
		for _, wait := range []int64{0, 20 * sec, 0} {
			now.Add(wait)
			bars := 0
			for i := range 1000 {
				if barred(request(fmt.Sprint("new ", wait, i))) {
					bars++
				}
			}
			assert.Zero(t, bars, "fails: %v", fails)
			assert.False(t, request("early").Allowed, "fails: %v", fails)
		}
	}
}

// TestNoOverflowKeysOfBans floods a guard in front of a real Redis. The rule gets overflow
// keys there and the ban none, and a client that Redis has barred stays barred.
func TestNoOverflowKeysOfBans(t *testing.T) {
	for _, instances := range []int{1, 3} {
		client := redistest.Real(t)
		s := New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &Options{MaxKeys: 512, Slow: time.Minute, Instances: instances})
		request := func(key string) core.Decision {
			charges := barring(2)
			for i := range charges {
				charges[i].Key, charges[i].Quota.Window = key, hour
			}
			charges[1].Quota.Bar = hour
			return storetest.MustTake(t, s, charges...)
		}
		for range 6 {
			request("early")
		}
		shared := 0
		for range 3 {
			for i := range 1000 {
				if d := request(fmt.Sprint("flood ", i)); d.Overflow(1) == core.SharedQuota {
					shared++
				}
			}
		}
		require.Greater(t, shared, 1000)
		assert.NotEmpty(t, client.Keys(t.Context(), "*r@"+overflowVariant+"*").Val())
		assert.Empty(t, client.Keys(t.Context(), "*ban@"+overflowVariant+"*").Val())
		assert.False(t, request("early").Allowed)
	}
}

// TestBansAndValuesInCycles takes through failures, lost data and recoveries, with every
// OnError: each call answers.
func TestBansAndValuesInCycles(t *testing.T) {
	race.Skip(t)
	choices := []core.OnError{core.Local, core.Allow, core.Refuse}
	for _, instances := range []int{1, 3} {
		random := rand.New(rand.NewPCG(4, uint64(instances)))
		f := newFleet(instances, random)
		modes := make(map[core.Mode]int)
		for range 200 {
			f.cycle(10*sec, func(instance int) {
				charges := append(barring(2), core.Charge{Rule: "d", Key: "k", ID: random.Uint64N(6),
					Quota: core.Quota{Algorithm: core.Distinct, Limit: 4, Window: 10 * sec}})
				for i := range charges {
					charges[i].Cost, charges[i].OnError = random.Int64N(3), choices[random.IntN(3)]
				}
				d := storetest.MustTake(t, f.guards[instance], charges...)
				for i, o := range d.Outcomes() {
					require.True(t, o.Fits() || !d.Allowed, fmt.Sprint(i, d))
				}
				modes[d.Mode]++
			})
		}
		t.Log(modes)
	}
}
