package memstore

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

// tiny returns a store with room for so many keys in each shard, and a function that
// sets its clock.
func tiny(room int) (*Store, func(micros int64)) {
	s, now := at(0)
	s.room = room
	return s, now.Store
}

// sameShard returns charges of one unit, of a rule, for n keys of shard 0.
func sameShard(s *Store, rule string, q core.Quota, n int) (charges []core.Charge) {
	for i := 0; len(charges) < n; i++ {
		c := core.Charge{Policy: "policy", Rule: rule, Key: fmt.Sprint("key ", i), Quota: q, Cost: 1}
		var k target
		if s.place(&k, &c); k.shard == 0 {
			charges = append(charges, c)
		}
	}
	return charges
}

// is checks a decision on one charge.
func is(t *testing.T, d core.Decision, mode core.Mode, allowed bool, o core.Outcome) {
	t.Helper()
	require.Equal(t, []any{mode, allowed, o}, []any{d.Mode, d.Allowed, d.Outcomes()[0]})
}

const sec = 1_000_000

func out(remaining, retry, more, reset int64) core.Outcome {
	return core.Outcome{Remaining: remaining, RetryAfter: retry, MoreAfter: more, ResetAfter: reset}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ most, room int }{{0, DefaultMaxKeys / 256}, {1, 1}, {256, 1}, {257, 2}, {math.MaxInt, math.MaxInt>>8 + 1}} {
		assert.Equal(t, c.room, New(&Options{MaxKeys: c.most}).room, "MaxKeys %d", c.most)
	}
	assert.Equal(t, DefaultMaxKeys/256, New(nil).room)
	assert.PanicsWithValue(t, "memstore: MaxKeys is -1: write how many keys to keep, or 0 for 131072",
		func() { New(&Options{MaxKeys: -1}) })
}

func TestNewKeysShareAQuota(t *testing.T) {
	s, set := tiny(2)
	keys := sameShard(s, "ip", core.Quota{Limit: 2, Window: 10 * sec}, 5)
	set(100 * sec)
	for _, c := range keys[:2] {
		is(t, take(t, s, c), core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
	}
	is(t, take(t, s, keys[2]), core.ModeOverflow, true, out(1, 0, 10*sec, 10*sec))
	set(101 * sec)
	is(t, take(t, s, keys[3]), core.ModeOverflow, true, out(0, 0, 9*sec, 10*sec))
	is(t, take(t, s, keys[4]), core.ModeOverflow, false, out(0, 9*sec, 0, 10*sec))
	is(t, take(t, s, keys[2]), core.ModeOverflow, false, out(0, 9*sec, 0, 10*sec))

	// Known keys are not affected.
	is(t, take(t, s, keys[0]), core.ModeExact, true, out(0, 0, 9*sec, 10*sec))
	is(t, take(t, s, keys[0]), core.ModeExact, false, out(0, 9*sec, 0, 10*sec))
	assert.Equal(t, 3, s.entries())
}

// TestLeavingOverflow follows a key that has taken from an overflow quota and one that has
// not, when there is room again.
func TestLeavingOverflow(t *testing.T) {
	s, set := tiny(2)
	keys := sameShard(s, "ip", core.Quota{Limit: 2, Window: 10 * sec}, 5)
	set(100 * sec)
	take(t, s, keys[0])
	take(t, s, keys[1])
	set(105 * sec)
	is(t, take(t, s, keys[2]), core.ModeOverflow, true, out(1, 0, 10*sec, 10*sec))
	is(t, take(t, s, keys[2]), core.ModeOverflow, true, out(0, 0, 10*sec, 10*sec))

	// At 110 there is room. Neither gets more than the overflow quota has left.
	set(110 * sec)
	is(t, take(t, s, keys[2]), core.ModeOverflow, false, out(0, 5*sec, 0, 5*sec))
	is(t, take(t, s, keys[3]), core.ModeOverflow, false, out(0, 5*sec, 0, 5*sec))

	// At 115 no key can have units there that still count.
	set(115*sec - 1)
	is(t, take(t, s, keys[2]), core.ModeOverflow, false, out(0, 1, 0, 1))
	set(115 * sec)
	is(t, take(t, s, keys[2]), core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
	is(t, take(t, s, keys[3]), core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
}

// TestBothQuotas has keys that get entries while their overflow quota is shared: they take
// from both.
func TestBothQuotas(t *testing.T) {
	s, set := tiny(2)
	keys := sameShard(s, "ip", core.Quota{Limit: 3, Window: 10 * sec}, 5)
	set(100 * sec)
	take(t, s, keys[0])
	take(t, s, keys[1])
	set(105 * sec)
	take(t, s, keys[2])
	set(110 * sec)
	is(t, take(t, s, keys[2]), core.ModeOverflow, true, out(1, 0, 5*sec, 10*sec))
	is(t, take(t, s, keys[3]), core.ModeOverflow, true, out(0, 0, 5*sec, 10*sec))
	is(t, take(t, s, keys[2]), core.ModeOverflow, false, out(0, 5*sec, 0, 10*sec))
	is(t, take(t, s, core.Charge{Rule: "ip", Key: keys[2].Key, Quota: keys[2].Quota}), core.ModeOverflow, true, out(0, 0, 5*sec, 10*sec))
	is(t, take(t, s, core.Charge{Rule: "ip", Key: keys[2].Key, Quota: keys[2].Quota, Cost: 4}), core.ModeOverflow, false,
		out(0, core.Never, 0, 10*sec))

	// Only the first unit was taken there because there was no room.
	set(115 * sec)
	is(t, take(t, s, keys[2]), core.ModeExact, true, out(1, 0, 5*sec, 10*sec))
	is(t, take(t, s, keys[3]), core.ModeExact, true, out(1, 0, 5*sec, 10*sec))
}

// TestOverflowEnds has a steady stream of new keys. A window after there is room again, each
// has its own quota.
func TestOverflowEnds(t *testing.T) {
	s, set := tiny(8)
	keys := sameShard(s, "ip", core.Quota{Limit: 2, Window: 10 * sec}, 400)
	set(100 * sec)
	for _, c := range keys[:20] {
		take(t, s, c)
	}
	exact := 0
	for i, c := range keys[20:] { // so few that there is always room
		now := 110*sec + int64(i)*4*sec
		set(now)
		d := take(t, s, c)
		if now >= 120*sec {
			is(t, d, core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
			exact++
		}
	}
	assert.Greater(t, exact, 300)
}

func TestRulesShareNoOverflow(t *testing.T) {
	s, _ := tiny(1)
	q := core.Quota{Limit: 1, Window: 10 * sec}
	take(t, s, sameShard(s, "first", q, 1)[0])
	a, b := sameShard(s, "a", q, 2), sameShard(s, "b", q, 2)
	d := take(t, s, a[0], b[0])
	assert.Equal(t, []any{core.ModeOverflow, true}, []any{d.Mode, d.Allowed})
	assert.False(t, take(t, s, a[1]).Allowed)
	assert.False(t, take(t, s, b[1]).Allowed)
	assert.Equal(t, 3, s.entries())
}

// TestQuotasShareNoOverflow has keys of one rule with different quotas. A short window and a
// small burst must not make an overflow quota lose units that count for others.
func TestQuotasShareNoOverflow(t *testing.T) {
	for _, pair := range [][2]core.Quota{
		{{Limit: 2, Window: 100 * sec}, {Limit: 2, Window: sec}},
		{{Algorithm: core.TokenBucket, Limit: 1, Window: 100 * sec, Burst: 20}, {Algorithm: core.TokenBucket, Limit: 1000, Window: 100 * sec, Burst: 1}},
		{{Algorithm: core.LeakyBucket, Limit: 1, Window: 100 * sec, Burst: 20}, {Algorithm: core.LeakyBucket, Limit: 1000, Window: 100 * sec, Burst: 1}},
	} {
		s, set := tiny(1)
		long, brief := sameShard(s, "ip", pair[0], 3), sameShard(s, "ip", pair[1], 100)[50:]
		take(t, s, sameShard(s, "first", core.Quota{Limit: 1, Window: 1000 * sec}, 1)[0])
		all := long[1]
		all.Cost = pair[0].Capacity()
		require.True(t, take(t, s, all).Allowed)
		for i, c := range brief {
			set(int64(1+i) * sec)
			assert.True(t, take(t, s, c).Allowed)
		}
		assert.False(t, take(t, s, long[1]).Allowed, "%+v", pair)
	}
}

// TestVersionsInOverflow checks the bound in docs/changing-limits.md: two versions of a rule
// with different windows admit the sum of both limits to a key in overflow, and no more.
func TestVersionsInOverflow(t *testing.T) {
	s, set := tiny(1)
	long := core.Quota{Limit: 20, Window: 100 * sec}
	brief := core.Quota{Limit: 3, Window: 100*sec - 1}
	take(t, s, sameShard(s, "first", core.Quota{Limit: 1, Window: 1000 * sec}, 1)[0])
	c, admitted := sameShard(s, "ip", long, 2)[1], 0
	for i := range 100 {
		set(int64(i) * sec / 2)
		c.Quota = long
		if i%2 == 0 {
			c.Quota = brief
		}
		if take(t, s, c).Allowed {
			admitted++
		}
	}
	assert.Equal(t, 23, admitted)
}

// TestChangedLimitKeepsOverflow checks that a changed limit does not admit again what the
// overflow quota has admitted.
func TestChangedLimitKeepsOverflow(t *testing.T) {
	s, _ := tiny(1)
	keys := sameShard(s, "ip", core.Quota{Limit: 2, Window: 100 * sec}, 3)
	take(t, s, keys[0])
	take(t, s, keys[1])
	take(t, s, keys[2])
	keys[1].Quota.Limit = 3
	is(t, take(t, s, keys[1]), core.ModeOverflow, true, out(0, 0, 100*sec, 100*sec))
	is(t, take(t, s, keys[1]), core.ModeOverflow, false, out(0, 100*sec, 0, 100*sec))
}

// TestRefusalsStoreNothingInOverflow checks that charges that take nothing make no overflow
// quota, take from none, and make none shared for longer.
func TestRefusalsStoreNothingInOverflow(t *testing.T) {
	s, set := tiny(1)
	q := core.Quota{Limit: 2, Window: 10 * sec}
	full := core.Charge{Rule: "global", Quota: core.Quota{Limit: 1, Window: 100 * sec}, Cost: 1}
	take(t, s, full)
	keys := sameShard(s, "ip", q, 10)
	take(t, s, keys[0])
	for _, c := range keys {
		assert.False(t, take(t, s, c, full).Allowed)
		look := c
		look.Cost = 0
		assert.True(t, take(t, s, look).Allowed)
	}
	assert.Equal(t, 2, s.entries())

	set(5 * sec)
	take(t, s, keys[1])
	set(9 * sec)
	for _, c := range keys[1:] {
		d := take(t, s, c, full)
		assert.False(t, d.Allowed)
		assert.Equal(t, out(1, 0, 6*sec, 6*sec), d.Outcomes()[0])
	}
	set(15 * sec)
	is(t, take(t, s, keys[2]), core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
}

// TestRefusalsDoNotProlongSharing has an overflow quota that keys with entries have taken from
// last.
func TestRefusalsDoNotProlongSharing(t *testing.T) {
	s, set := tiny(3)
	full := core.Charge{Rule: "global", Quota: core.Quota{Limit: 1, Window: 100 * sec}, Cost: 1}
	keys := sameShard(s, "ip", core.Quota{Limit: 4, Window: 10 * sec}, 8)
	set(100 * sec)
	take(t, s, full)
	for _, c := range keys[:3] {
		take(t, s, c)
	}
	set(105 * sec)
	take(t, s, keys[3])
	set(110 * sec)
	take(t, s, keys[4])
	take(t, s, keys[5])
	take(t, s, sameShard(s, "brief", core.Quota{Limit: 1, Window: 6 * sec}, 1)[0])
	assert.False(t, take(t, s, keys[6], full).Allowed)
	set(116 * sec)
	is(t, take(t, s, keys[6]), core.ModeExact, true, out(3, 0, 10*sec, 10*sec))
}

// TestTurnsInOverflow checks a queue: the turns of all keys in overflow follow one another,
// also when one of them has an entry.
func TestTurnsInOverflow(t *testing.T) {
	s, set := tiny(1)
	q := core.Quota{Algorithm: core.Queue, Limit: 1, Window: sec, Burst: 9}
	keys := sameShard(s, "ip", q, 4)
	take(t, s, core.Charge{Rule: "first", Key: sameShard(s, "first", q, 1)[0].Key, Quota: core.Quota{Limit: 1, Window: 2 * sec}, Cost: 1})
	for turn, c := range []core.Charge{keys[0], keys[1], keys[0], keys[2]} {
		assert.Equal(t, int64(turn)*sec, take(t, s, c).Delay)
	}
	set(2 * sec)
	d := take(t, s, keys[0])
	assert.Equal(t, []any{core.ModeOverflow, true, int64(2 * sec)}, []any{d.Mode, d.Allowed, d.Delay})
}

func TestOverflowAllocates(t *testing.T) {
	for _, q := range []core.Quota{{Limit: 1, Window: 10 * sec}, {Algorithm: core.Ban, Limit: 1000, Window: 10 * sec, Bar: sec}} {
		s, set := tiny(1)
		keys := sameShard(s, "ip", q, 10)
		set(sec)
		for _, c := range keys {
			take(t, s, c)
		}
		keys = keys[1:] // the first has an entry
		i := 0
		charges := make([]core.Charge, 1)
		asks := []core.Ask{{Charges: charges}}
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			charges[0] = keys[i%len(keys)]
			charges[0].Policy = "policy"
			i++
			_ = s.Take(context.Background(), asks)
		}), q.Algorithm)
	}
}

// TestAskInOverflow has an ask beside another one take from its key's entry and from an
// overflow quota: from both or from none.
func TestAskInOverflow(t *testing.T) {
	s, set := tiny(1)
	q := core.Quota{Limit: 3, Window: 10 * sec}
	keys := sameShard(s, "ip", q, 3)
	set(100 * sec)
	take(t, s, keys[0])
	set(105 * sec)
	take(t, s, keys[1]) // shares an overflow quota
	take(t, s, keys[2])
	set(110 * sec) // there is room
	never := core.Charge{Rule: "never", Quota: q, Cost: 4}
	beside := func() core.Decision {
		asks := []core.Ask{{Charges: storetest.Of("policy", never)}, {Charges: storetest.Of("policy", keys[1])}}
		require.NoError(t, s.Take(t.Context(), asks))
		require.False(t, asks[0].Decision.Allowed)
		return asks[1].Decision
	}
	d := beside()
	require.Equal(t, core.BothQuotas, d.Overflow(0))
	is(t, d, core.ModeOverflow, true, out(0, 0, 5*sec, 10*sec))
	for range 3 {
		d = beside()
		require.False(t, d.Allowed)
		require.Equal(t, out(0, 5*sec, 0, 10*sec), d.Outcomes()[0])
	}
	set(115 * sec) // the overflow quota has lost its first two units
	for remain := int64(1); remain >= 0; remain-- {
		d = beside()
		require.True(t, d.Allowed)
		require.Equal(t, remain, d.Outcomes()[0].Remaining)
	}
}

// TestAsksOnNewKey has two asks on a key that the store has no entry for: the second sees
// what the first took, also where both share an overflow quota.
func TestAsksOnNewKey(t *testing.T) {
	s, set := tiny(1)
	keys := sameShard(s, "ip", core.Quota{Limit: 3, Window: 10 * sec}, 3)
	set(100 * sec)
	for i, c := range storetest.Of("policy", keys...) {
		asks := []core.Ask{{Charges: []core.Charge{c}}, {Charges: []core.Charge{c}}}
		require.NoError(t, s.Take(t.Context(), asks))
		for j := range asks {
			want := int64(2 - j)
			if i == 2 {
				want = max(0, want-2) // the overflow quota, of which the second key took two
			}
			require.Equal(t, want, asks[j].Decision.Outcomes()[0].Remaining, "key %d, ask %d", i, j)
		}
	}
}

// TestOverflowBarsNoClient floods a full memory from 6,000 keys, each of which earns a
// ban many times. A ban refuses no new client, neither during the flood nor later, and
// keys that were barred before stay barred.
func TestOverflowBarsNoClient(t *testing.T) {
	now := int64(1000 * sec)
	s := New(&Options{MaxKeys: 4096, Now: func() int64 { return now }})
	request := func(key string, cost int64) core.Decision {
		return take(t, s,
			core.Charge{Rule: "ip", Key: key, Quota: core.Quota{Limit: 2, Window: 10 * sec}, Cost: 1},
			core.Charge{Rule: "ban", Key: key, Quota: core.Quota{Algorithm: core.Ban, Limit: 3, Window: 60 * sec, Bar: 3600 * sec}, Cost: cost})
	}
	barred := func(d core.Decision) bool { return !d.Outcomes()[1].Fits() }
	for range 5 {
		request("early", 0)
	}
	require.True(t, barred(request("early", 0)))

	overflows := 0
	for range 9 {
		for i := range 6000 {
			if d := request(fmt.Sprint("flood ", i), 0); d.Overflow(1) != core.OwnQuota {
				overflows++
			}
		}
	}
	require.Greater(t, overflows, 10_000)
	count := func(name string) (bars, refused int) {
		for i := range 1000 {
			d := request(fmt.Sprint(name, i), 1)
			if barred(d) {
				bars++
			}
			if !d.Allowed {
				refused++
			}
		}
		return bars, refused
	}
	bars, refused := count("during ")
	assert.Zero(t, bars)
	assert.NotZero(t, refused, "the other rule has an overflow quota")
	assert.True(t, barred(request("early", 0)), "has a state of its own")

	now += 20 * sec // the rule has forgotten the flood; the bars have not ended
	bars, _ = count("after ")
	assert.Zero(t, bars)
	assert.True(t, barred(request("early", 0)))

	d := take(t, s, core.Charge{Rule: "ban", Key: "other", Quota: core.Quota{Algorithm: core.Ban, Limit: 3, Window: 60 * sec, Bar: 3600 * sec}, Cost: 4})
	assert.Equal(t, core.Never, d.Outcomes()[0].RetryAfter, "no ban admits a cost above its limit")
}
