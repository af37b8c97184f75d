package memstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/storetest"
)

func giveBack(t *testing.T, s *Store, r core.Return) int64 {
	t.Helper()
	given, err := storetest.Return(context.Background(), s, "policy", []core.Return{r})
	if err != nil {
		t.Fatal(err)
	}
	return given[0]
}

// TestRemembersReturns checks that a bucket that is full again is kept as long as the units
// that were returned to it matter.
func TestRemembersReturns(t *testing.T) {
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket} {
		s, now := at(1_000_000)
		c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Algorithm: a, Limit: 1, Window: 5_000, Burst: 10}, Cost: 5}
		admit := func() core.Return {
			d := take(t, s, c)
			return core.Return{Charge: c, At: d.At, Remaining: d.Outcomes()[0].Remaining}
		}
		first, second := admit(), admit()
		if given := giveBack(t, s, first); given != 5 {
			t.Fatalf("%d given back", given)
		}
		now.Add(30_000) // full after 25 ms
		for i := range 10_000 {
			take(t, s, core.Charge{Rule: "other", Key: fmt.Sprint(i), Quota: core.Quota{Limit: 1, Window: 1_000}, Cost: 1})
		}
		admit()
		if given := giveBack(t, s, second); given != 0 {
			t.Errorf("%v: %d given back of what has come back by itself", a, given)
		}
		now.Add(1_000_000)
		for i := range 10_000 {
			take(t, s, core.Charge{Rule: "yet another", Key: fmt.Sprint(i), Quota: core.Quota{Limit: 1, Window: 1_000}, Cost: 1})
		}
		if s.entryOf("policy", c) != nil {
			t.Errorf("%v: remembered forever", a)
		}
	}
}

func TestReturnWithDoneContext(t *testing.T) {
	s, _ := at(1_000_000)
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: 1_000}, Cost: 3}
	take(t, s, c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := storetest.Return(ctx, s, "policy", []core.Return{{Charge: c, At: 1_000_000}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := storetest.Reset(ctx, s, "policy", "r", "k"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if take(t, s, c).Allowed {
		t.Error("a call with a context that was done has given something back")
	}
}

// TestForgottenHolds settles long holds that nobody repeats, beside one that lives.
func TestForgottenHolds(t *testing.T) {
	s := New(nil)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
	for i := range 1_000 {
		h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MaxHold}
		require.NoError(t, s.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		if i == 0 {
			continue
		}
		done := must.Get(s.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: h.ID, Used: int64(min(1, 80/(i+1))), Forget: true}}))(t)
		require.Equal(t, core.HoldLives, done[0].Found)
	}
	for i := range s.shards {
		for _, h := range s.shards[i].held.keys {
			require.Len(t, h.byID, 1)
			require.LessOrEqual(t, len(h.ends), 18)
			require.Equal(t, core.HoldIDOf("0"), h.ends[0].id)
		}
	}
}

// TestReturnsBeyondTheCap returns units of keys in overflow. The overflow quota gets nothing
// back, since other keys have units there. A key that leaves it gets no more than
// both quotas have room for.
func TestReturnsBeyondTheCap(t *testing.T) {
	s, set := tiny(2)
	keys := sameShard(s, "ip", core.Quota{Limit: 2, Window: 10 * sec}, 5)
	giveBack := func(c core.Charge, at int64) int64 {
		given := must.Get(storetest.Return(t.Context(), s, "policy", []core.Return{{Charge: c, At: at}}))(t)
		return given[0]
	}
	set(100 * sec)
	take(t, s, keys[0])
	take(t, s, keys[1])
	take(t, s, keys[2])
	take(t, s, keys[3])
	assert.EqualValues(t, 1, giveBack(keys[0], 100*sec), "a key of its own")
	assert.Zero(t, giveBack(keys[2], 100*sec))
	is(t, take(t, s, keys[4]), core.ModeOverflow, false, out(0, 10*sec, 0, 10*sec))

	require.NoError(t, storetest.Reset(t.Context(), s, "policy", "ip", keys[0].Key))
	require.NoError(t, storetest.Reset(t.Context(), s, "policy", "ip", keys[2].Key), "which leaves the overflow quota as it is")
	set(105 * sec)
	is(t, take(t, s, keys[2]), core.ModeOverflow, false, out(0, 5*sec, 0, 5*sec)) // there is room, but the overflow quota counts
	set(110*sec - 1)
	is(t, take(t, s, keys[4]), core.ModeOverflow, false, out(0, 1, 0, 1))
	set(110 * sec)
	is(t, take(t, s, keys[2]), core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
}

// TestLeasesBeyondTheCap holds leases in an overflow quota, and in that and an entry.
func TestLeasesBeyondTheCap(t *testing.T) {
	s, set := tiny(1)
	q := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 10 * sec}
	keys := sameShard(s, "flight", q, 4)
	for i := range keys {
		keys[i].ID = uint64(i + 1)
	}
	hold := func(c core.Charge, mode core.Mode, allowed bool) {
		t.Helper()
		d := take(t, s, c)
		require.Equal(t, []any{mode, allowed}, []any{d.Mode, d.Allowed})
	}
	renew := func(c core.Charge) bool {
		held := must.Get(storetest.Renew(t.Context(), s, "policy", []core.Charge{c}))(t)
		return held[0]
	}
	release := func(c core.Charge) { require.NoError(t, storetest.Release(t.Context(), s, "policy", []core.Charge{c})) }
	set(100 * sec)
	hold(keys[0], core.ModeExact, true)
	hold(keys[1], core.ModeOverflow, true)
	hold(keys[2], core.ModeOverflow, true)
	hold(keys[3], core.ModeOverflow, false)
	foreign := keys[1]
	foreign.ID = 99
	release(foreign)
	hold(keys[3], core.ModeOverflow, false)
	release(keys[2])
	assert.False(t, renew(keys[2]), "it has ended")
	hold(keys[3], core.ModeOverflow, true)

	set(108 * sec)
	assert.True(t, renew(keys[1]), "in the overflow quota")
	set(111 * sec) // keys[0] and keys[3] have ended, and so there is room
	other := keys[1]
	other.ID = 50
	hold(other, core.ModeOverflow, true) // in an entry, and in the overflow quota beside keys[1]
	hold(keys[3], core.ModeOverflow, false)
	assert.True(t, renew(other))
	release(other)
	release(other)
	release(keys[1])
	hold(keys[1], core.ModeOverflow, true)
}
