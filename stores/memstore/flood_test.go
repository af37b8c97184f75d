package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestFloods draws schedules of floods on stores with next to no room. For each key, a
// state of its own is charged as well. That state must have room for whatever the
// store admits: then the key gets no more than it would without other keys. An
// exact decision must be the one that package core makes on those states.
func TestFloods(t *testing.T) {
	race.Skip(t)
	n := 400
	if testing.Short() {
		n = 150
	}
	var modes [2]int
	admitted := 0
	for i := range n {
		f := newFlood(t, uint64(i))
		f.run()
		modes[core.ModeExact] += f.modes[core.ModeExact]
		modes[core.ModeOverflow] += f.modes[core.ModeOverflow]
		admitted += f.admitted
	}
	t.Logf("%d schedules: %d decisions are exact, %d are not, %d admit", n, modes[0], modes[1], admitted)
	assert.Greater(t, modes[0], 10*n)
	assert.Greater(t, modes[1], 10*n)
	assert.Greater(t, admitted, 20*n)
}

type flood struct {
	t        *testing.T
	random   *rand.Rand
	s        *Store
	set      func(int64)
	now      int64
	rules    [][]core.Charge // each with the keys of one shard
	alone    map[string]core.State
	modes    [2]int
	admitted int
	met      core.Outcome
}

// floodQuotas are the quotas that hold for each key in overflow. A window that begins
// with its first unit is not among them: see TestWindowsInOverflow.
var floodQuotas = []core.Quota{
	{Limit: 1, Window: sec},
	{Limit: 3, Window: sec},
	{Limit: 2, Window: 5 * sec},
	{Algorithm: core.FixedWindow, Limit: 2, Window: sec, Aligned: true},
	{Algorithm: core.SlidingCells, Limit: 3, Window: sec, Cells: 5},
	{Algorithm: core.SlidingCounter, Limit: 4, Window: sec},
	{Algorithm: core.TokenBucket, Limit: 2, Window: sec, Burst: 3},
	{Algorithm: core.LeakyBucket, Limit: 2, Window: sec, Burst: 3},
	{Algorithm: core.Queue, Limit: 5, Window: sec, Burst: 3},
}

func newFlood(t *testing.T, seed uint64) *flood {
	random := rand.New(rand.NewPCG(39, seed))
	s, set := tiny(1 + random.IntN(4))
	f := &flood{t: t, random: random, s: s, set: set, now: 1_000 * sec, alone: make(map[string]core.State)}
	for i := range 1 + random.IntN(3) {
		q := floodQuotas[random.IntN(len(floodQuotas))]
		f.rules = append(f.rules, sameShard(s, fmt.Sprint("r", i), q, 12))
	}
	return f
}

func (f *flood) run() {
	for range 100 {
		// In calm times few keys come, and seldom. In a flood all come at once.
		keys, step := 2, int64(2*sec)
		if f.random.IntN(3) > 0 {
			keys, step = 12, sec/8
		}
		for range 1 + f.random.IntN(10) {
			switch f.random.IntN(4) {
			case 0:
				f.now += f.random.Int64N(step)
			case 1:
				f.now += max(0, f.met.RetryAfter)
			case 2:
				f.now += max(0, f.met.RetryAfter-1)
			}
			f.decide(keys)
		}
	}
}

func (f *flood) decide(keys int) {
	var charges []core.Charge
	for _, rule := range f.rules {
		c := rule[f.random.IntN(keys)]
		if f.random.IntN(8) == 0 {
			c.Cost = f.random.Int64N(4)
		}
		charges = append(charges, c)
	}
	f.random.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
	f.set(f.now)
	d := take(f.t, f.s, charges...)
	f.modes[d.Mode]++
	f.met = d.Outcomes()[f.random.IntN(len(charges))]

	var alone []core.State
	for _, c := range charges {
		id := c.Rule + c.Key
		if f.alone[id] == nil {
			f.alone[id] = core.NewState(c.Quota.Algorithm)
		}
		alone = append(alone, f.alone[id])
	}
	if d.Mode == core.ModeExact {
		want := core.Decide(f.now, charges, alone)
		if d.Allowed != want.Allowed || d.Delay != want.Delay || !slices.Equal(d.Outcomes(), want.Outcomes()) {
			f.t.Fatalf("at %d: %+v\nis      %+v\nand not %+v", f.now, charges, d, want)
		}
		return
	}
	for i, c := range charges {
		room := alone[i].Advance(&c.Quota, f.now)
		o := d.Outcomes()[i]
		if o.Remaining > max(0, room) || d.Allowed && c.Cost > room && c.Cost > 0 {
			f.t.Fatalf("at %d: %+v has %+v, and alone had room for %d", f.now, c, o, room)
		}
		if d.Allowed && c.Cost > 0 {
			f.admitted++
			alone[i].Take(c.Cost, 0)
		}
	}
	if shard := &f.s.shards[0]; shard.keys.len > f.s.room || shard.overflow.len > overflowRoom {
		f.t.Fatalf("%d entries and %d overflow quotas in a shard with room for %d and %d", shard.keys.len, shard.overflow.len, f.s.room, overflowRoom)
	}
}

// TestWindowsInOverflow checks a window that begins with the first unit. It is that of the
// overflow quota, and may have begun when a key comes to it. Within each window,
// the key gets no more than its limit.
func TestWindowsInOverflow(t *testing.T) {
	s, set := tiny(1)
	keys := sameShard(s, "ip", core.Quota{Algorithm: core.FixedWindow, Limit: 2, Window: 10 * sec}, 4)
	set(100 * sec)
	take(t, s, keys[0])
	set(106 * sec)
	is(t, take(t, s, keys[1]), core.ModeOverflow, true, out(1, 0, 10*sec, 10*sec))
	set(109 * sec)
	is(t, take(t, s, keys[2]), core.ModeOverflow, true, out(0, 0, 7*sec, 7*sec))
	is(t, take(t, s, keys[2]), core.ModeOverflow, false, out(0, 7*sec, 0, 7*sec))
	set(116 * sec)
	is(t, take(t, s, keys[2]), core.ModeExact, true, out(1, 0, 10*sec, 10*sec))
}

// TestFloodOfRandomKeys checks that a flood neither fills the memory nor resets a key that is
// over its limit, and that it leaves no trace.
func TestFloodOfRandomKeys(t *testing.T) {
	race.Skip(t)
	s, now := at(1_000 * sec)
	s.room = New(&Options{MaxKeys: 2_048}).room
	q := core.Quota{Limit: 5, Window: 60 * sec}
	attacker := core.Charge{Rule: "ip", Key: "attacker", Quota: q, Cost: 1}
	for range 5 {
		require.True(t, take(t, s, attacker).Allowed)
	}
	random := rand.New(rand.NewPCG(9, 9))
	for i := range 200_000 { // in half a window
		now.Add(150)
		c := attacker
		c.Key = fmt.Sprint(random.Uint64())
		take(t, s, c)
		if i%100 == 0 {
			require.False(t, take(t, s, attacker).Allowed, "after %d keys", i)
		}
	}
	require.LessOrEqual(t, s.entries(), 2_048+keyShards)
	now.Store(1_060*sec - 1)
	require.False(t, take(t, s, attacker).Allowed)
	now.Store(1_060 * sec)
	is(t, take(t, s, attacker), core.ModeExact, true, out(4, 0, 60*sec, 60*sec))

	now.Add(60 * sec)
	for i := range 1_000 {
		now.Add(sec)
		is(t, take(t, s, core.Charge{Rule: "ip", Key: fmt.Sprint("later ", i), Quota: q, Cost: 1}), core.ModeExact, true, out(4, 0, 60*sec, 60*sec))
	}
}

// TestAnyWindowInAFlood has many goroutines take what they can of a few keys in a flood of
// others, by the clock of the machine, and checks every window of what they took.
func TestAnyWindowInAFlood(t *testing.T) {
	s := New(&Options{MaxKeys: 256})
	q := core.Quota{Limit: 5, Window: 50_000}
	deadline := time.Now().Add(time.Second)
	var mu sync.Mutex
	admitted := make(map[string][]int64)
	var modes [2]int
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(deadline) {
				a, b := fmt.Sprint(random.IntN(8)), fmt.Sprint(random.IntN(8))
				if random.IntN(3) > 0 {
					a = fmt.Sprint("flood ", random.Uint64())
				}
				if random.IntN(3) > 0 {
					b = fmt.Sprint("flood ", random.Uint64())
				}
				charges := []core.Charge{{Rule: "a", Key: a, Quota: q, Cost: 1}, {Rule: "b", Key: b, Quota: q, Cost: 1}}
				if i%2 == 0 {
					slices.Reverse(charges)
				}
				d, err := storetest.Take(context.Background(), s, "policy", charges)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				modes[d.Mode]++
				if d.Allowed {
					admitted["a"+a] = append(admitted["a"+a], d.At)
					admitted["b"+b] = append(admitted["b"+b], d.At)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	watched := 0
	for key, times := range admitted {
		slices.Sort(times)
		for i := int(q.Limit); i < len(times); i++ {
			watched++
			assert.GreaterOrEqual(t, times[i]-times[i-int(q.Limit)], q.Window, "key %s", key)
		}
	}
	t.Logf("%d keys, %d windows looked at; %d exact, %d not", len(admitted), watched, modes[0], modes[1])
	assert.NotZero(t, modes[core.ModeExact])
	assert.NotZero(t, modes[core.ModeOverflow])
}
