package refusals

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestOverlap has calls whose answers arrive in another order than they were
// decided in.
func TestOverlap(t *testing.T) {
	w := newTwins()
	request := func(ip string) []core.Charge {
		return []core.Charge{charge("ip", ip, core.Quota{Limit: 1, Window: 5_000_000}, 1), charge("user", "u", core.Quota{Limit: 3, Window: 10_000_000}, 1)}
	}
	take := func(ip string) core.Decision {
		return storetest.MustTake(t, w.store, request(ip)...)
	}
	take("1")
	overlapped := func(then func()) core.Decision {
		w.time++
		w.inner.then = func() {
			w.inner.then = nil
			w.time++
			then()
			w.time++
		}
		return take("1")
	}
	w.time += longest
	d := overlapped(func() { take("2") })
	require.False(t, d.Allowed)
	require.EqualValues(t, 2, d.Outcomes()[1].Remaining, "the answer itself is older")
	again := take("1")
	require.Equal(t, core.ModeRemembered, again.Mode)
	require.EqualValues(t, 1, again.Outcomes()[1].Remaining, "what is remembered is not")
	w.time += longest
	d = overlapped(func() { take("3") })
	require.EqualValues(t, 1, d.Outcomes()[1].Remaining)
	d = take("1")
	require.Equal(t, core.ModeRemembered, d.Mode)
	require.EqualValues(t, w.time, d.At)
	require.Positive(t, d.Outcomes()[1].RetryAfter)
	w.time += d.RetryAfter()
	require.True(t, take("1").Allowed)
}

// TestOverlapLeavesTooLittle has a call beside the first one about a key leave less than the next
// request needs: that is remembered, although it is not nothing.
func TestOverlapLeavesTooLittle(t *testing.T) {
	for _, user := range []core.Charge{{Quota: core.Quota{Limit: 5}, Cost: 2}, {Quota: core.Quota{Limit: 3}, Cost: 1, Reserve: 1}} {
		w := newTwins()
		user.Policy, user.Rule, user.Key, user.Quota.Window = "p", "user", "u", 10_000_000
		ip := charge("ip", "1", core.Quota{Limit: 1, Window: 5_000_000}, 1)
		w.inner.then = func() {
			w.inner.then = nil
			w.time++
			require.True(t, storetest.MustTake(t, w.store, user).Allowed)
			w.time++
		}
		require.True(t, storetest.MustTake(t, w.store, ip, user).Allowed)
		d := storetest.MustTake(t, w.store, ip, user)
		require.Equal(t, core.ModeExact, d.Mode)
		require.False(t, d.Outcomes()[1].Fits())
	}
}

// TestOverlapAtRandom has calls within calls, before and after the decision of the
// outer one. What is remembered then agrees with the store.
func TestOverlapAtRandom(t *testing.T) {
	race.Skip(t)
	remembered := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		w := newTwins()
		request := func() []core.Charge {
			return []core.Charge{
				charge("ip", fmt.Sprint(random.IntN(3)), core.Quota{Limit: 1, Window: 2_000_000}, 1),
				charge("user", "u", core.Quota{Limit: 3, Window: 3_000_000}, 1),
			}
		}
		var take func(depth int)
		take = func(depth int) {
			charges := request()
			nested := func() {
				w.time += random.Int64N(200_000)
				if depth < 3 && random.IntN(2) == 0 {
					take(depth + 1)
				}
			}
			w.inner.before, w.inner.then = nested, nested
			storetest.MustTake(t, w.store, charges...)
		}
		for step := range 100 {
			w.time += random.Int64N(400_000)
			take(0)
			w.inner.before, w.inner.then = nil, nil
			w.time++
			charges := request()
			peek := append([]core.Charge(nil), charges...)
			peek[0].Cost, peek[1].Cost = 0, 0
			truth := storetest.MustTake(t, w.inner.Store, peek...)
			ask := core.Ask{Charges: charges}
			if !w.store.remembered(&ask, w.hashes(charges)[:len(charges)], w.time) {
				continue
			}
			remembered++
			for i, o := range ask.Decision.Outcomes() {
				now := truth.Outcomes()[i]
				require.Equal(t, now.Remaining > 0, o.Fits(), "seed %d, step %d", seed, step)
				if !o.Fits() {
					require.GreaterOrEqual(t, o.RetryAfter, now.MoreAfter, "seed %d, step %d", seed, step)
				}
			}
		}
	}
	t.Logf("%d of 30,000 requests were refused from memory", remembered)
	require.Greater(t, remembered, 1000)
}
