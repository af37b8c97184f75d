package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestTallies compares the scripts with package core: see [storetest.Lives].
func TestTallies(t *testing.T) {
	race.Skip(t)
	storetest.Lives(t, harness(redistest.Client(t)), storetest.Tallies, 0, 200)
}

// Versions of a rule: most of the scripts of a log of more than 128 units are its own.
var largeLog, largeWindow = core.Quota{Limit: 1000, Window: 60_000_000}, core.Quota{Algorithm: core.FixedWindow, Limit: 1000, Window: 60_000_000}

// TestUsualTallied compares the script for usual calls with the files of the whole one, in replies
// and in stored bytes, over random histories: of keys that two or three algorithms charge, in calls
// on one key to nine, with a clock that sometimes steps back.
func TestUsualTallied(t *testing.T) {
	race.Skip(t)
	client, other := withTwin(t)
	other.every = 1
	now := start
	store := at(client, &now)
	units := []core.Algorithm{core.SlidingLog, core.FixedWindow, core.SlidingCells, core.SlidingCounter, core.TokenBucket, core.LeakyBucket, core.Queue}
	calls, keys, refused, schedules := 0, 0, 0, 40
	if n, err := strconv.Atoi(os.Getenv("LIMIT_SCHEDULES")); err == nil {
		schedules = n
	}
	for seed := range schedules {
		random := rand.New(rand.NewPCG(13, uint64(seed)))
		quotas := make([]core.Quota, 2+random.IntN(2))
		var others lua.Algorithms
		for i := range quotas {
			q := core.Quota{Algorithm: units[random.IntN(len(units))], Limit: []int64{1, 3, 10, 30, 128, 1000}[random.IntN(6)], Window: 1_000_000 << random.IntN(14)}
			switch {
			case q.Refills():
				q.Burst = 1 + random.Int64N(40)
				q.Missing = q.Burst * random.Int64N(2) * random.Int64N(2)
			case q.Algorithm == core.SlidingCells:
				q.Cells = 2 + random.Int64N(12)
			case q.Queues():
				q.Burst, q.MaxWait = random.Int64N(20), random.Int64N(2)*q.Window
			case q.Algorithm == core.FixedWindow:
				q.Aligned = random.IntN(2) == 0
			}
			quotas[i], others = q, others|1<<q.Algorithm
		}
		for range 60 {
			q := quotas[random.IntN(len(quotas))]
			now += random.Int64N(2) * random.Int64N(1+q.Window/[]int64{1, 10, 100, 1000}[random.IntN(4)])
			if random.IntN(60) == 0 {
				now -= q.Window / 4
			}
			var batch [][]core.Ask
			for range 1 + random.IntN(2)*random.IntN(9) {
				c := core.Charge{Policy: fmt.Sprint("p", seed), Rule: "r", Key: fmt.Sprint("k", random.IntN(2)*random.IntN(9)), Quota: q, Cost: random.Int64N(1 + max(2, q.Limit/20))}
				beside := c
				beside.Rule, beside.Quota = "beside", quotas[0]
				batch = append(batch, []core.Ask{{Charges: []core.Charge{c, beside}[:1+seed%2]}})
			}
			if random.IntN(30) == 0 {
				batch[0][0].Charges[0].Cost = q.Limit + 1
			}
			rules := lua.NewRules(store.prefix, batch[0])
			reply, _, err := store.decide(t.Context(), rules, batch, rules.Tallied(others), false)
			require.NoError(t, err)
			require.NoError(t, rules.Decode(reply, batch, func(_ int, err error) { require.NoError(t, err) }))
			if !batch[0][0].Decision.Allowed {
				refused++
			}
			calls, keys = calls+len(batch[0][0].Charges), keys+len(batch)*len(batch[0][0].Charges)
		}
		now = max(now, start)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, quotas)
		}
	}
	m := regexp.MustCompile(`cmdstat_getrange:calls=(\d+)`).FindStringSubmatch(client.Info(t.Context(), "commandstats").Val())
	reads := must.Get(strconv.Atoi(m[1]))(t)
	left := reads - calls // the whole script reads each key so once more
	t.Logf("%d charges, %d left to the whole script, %d refused", keys, left, refused)
	assert.Less(t, left, keys/2)
	assert.Greater(t, left, keys/20)
	assert.Greater(t, refused, schedules*60/10)
}

// TestToldAboveLimit has a clock step back behind a window that has more than its limit, since
// another algorithm took it. What is above the limit counts in the next window nevertheless.
func TestToldAboveLimit(t *testing.T) {
	log := core.Quota{Limit: 10, Window: 10_000_000}
	window := core.Quota{Algorithm: core.FixedWindow, Limit: 2, Window: 10_000_000}
	now := start
	store := at(redistest.Client(t), &now)
	var state core.State = core.NewTallies(log.Algorithm, core.NewState(log.Algorithm))
	for i, step := range []struct {
		after int64
		quota core.Quota
		cost  int64
	}{{0, log, 1}, {0, window, 1}, {0, log, 1}, {0, log, 5}, {-1, window, 1}, {10_000_000, window, 1}, {10_000_000, window, 1}} {
		now += step.after
		charges := []core.Charge{{Rule: "r", Key: "k", Quota: step.quota, Cost: step.cost}}
		got := must.Get(core.Take(t.Context(), store, charges))(t)
		want := core.Decide(now, charges, []core.State{state})
		require.Equal(t, want.Outcomes(), got.Outcomes(), "step %d", i)
	}
}

// TestToldAfterReturns has a window be told more than its limit after all of it was given back:
// it is as new, so the next window counts nothing of that.
func TestToldAfterReturns(t *testing.T) {
	log := core.Quota{Limit: 10, Window: 10_000_000}
	window := core.Quota{Algorithm: core.FixedWindow, Limit: 2, Window: 10_000_000}
	now := start
	store := at(redistest.Client(t), &now)
	var state core.State = core.NewTallies(log.Algorithm, core.NewState(log.Algorithm))
	take := func(q core.Quota, cost int64) core.Return {
		charges := []core.Charge{{Rule: "r", Key: "k", Quota: q, Cost: cost}}
		got := must.Get(core.Take(t.Context(), store, charges))(t)
		want := core.Decide(now, charges, []core.State{state})
		require.Equal(t, want.Outcomes(), got.Outcomes())
		return got.Return(0, charges[0])
	}
	for _, r := range []core.Return{take(log, 1), take(window, 1), take(log, 1)} {
		now++
		got := must.Get(store.Return(t.Context(), []core.Return{r}))(t)
		require.Equal(t, state.Return(&r, now), got[0].Units)
	}
	take(log, 9)
	take(window, 0)
	now += window.Window
	assert.EqualValues(t, 2, take(window, 0).Remaining)
}

// TestFilledBesideLog has a rule become a log above 128 on a key that a window has charged. What
// the log begins with says nothing of the other keys of the request.
func TestFilledBesideLog(t *testing.T) {
	now := start
	store := at(redistest.Client(t), &now)
	beside := core.Charge{Rule: "a", Key: "k", Quota: largeLog, Cost: 100}
	turns := core.Charge{Rule: "b", Key: "k", Quota: largeWindow, Cost: 3}
	storetest.MustTake(t, store, beside)
	storetest.MustTake(t, store, turns)
	beside.Cost, turns.Cost, turns.Quota = 1, 1, largeLog
	for i := range int64(3) {
		d := storetest.MustTake(t, store, beside, turns)
		assert.Equal(t, 899-i, d.Outcomes()[0].Remaining)
		assert.Equal(t, 996-i, d.Outcomes()[1].Remaining)
	}
}

// TestDebtBesideLargeLog has debts and settlements on keys that a window and a log above 128 charge.
func TestDebtBesideLargeLog(t *testing.T) {
	now := start
	store := at(redistest.Client(t), &now)
	held := core.Ask{Charges: []core.Charge{{Policy: "p", Rule: "r", Key: "k", Quota: largeLog, Cost: 1}}}
	require.NoError(t, store.Hold(t.Context(), &held, &core.Hold{ID: core.HoldID{1}, Life: core.MinHold}))
	c := held.Charges[0]
	for _, c.Quota = range []core.Quota{largeWindow, largeLog} {
		storetest.MustTake(t, store, c)
	}
	for _, c.Quota = range []core.Quota{largeWindow, largeLog} {
		owed := c
		owed.Debt, owed.Cost = true, 50
		storetest.MustTake(t, store, owed)
	}
	done := must.Get(store.Settle(t.Context(), []core.Settlement{{Return: held.Decision.Return(0, held.Charges[0]), Hold: core.HoldID{1}, Used: 51}}))(t)
	assert.EqualValues(t, 50, done[0].Taken)
	for _, c.Quota = range []core.Quota{largeWindow, largeLog} {
		c.Cost = 0
		d := storetest.MustTake(t, store, c)
		assert.EqualValues(t, 847, d.Outcomes()[0].Remaining, c.Quota.Algorithm)
	}
}

// TestReturnBesideLongLog has units given back to a window on a key whose log is a ring, and to
// another key by the same call.
func TestReturnBesideLongLog(t *testing.T) {
	now := start
	store := at(redistest.Client(t), &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k"}
	var taken core.Return
	for _, step := range []struct {
		quota core.Quota
		cost  int64
	}{{largeWindow, 1}, {largeLog, 150}, {largeWindow, 3}} {
		c.Quota, c.Cost = step.quota, step.cost
		d := storetest.MustTake(t, store, c)
		taken = d.Return(0, c)
	}
	beside := core.Charge{Policy: "p", Rule: "beside", Key: "k", Quota: largeLog, Cost: 7}
	d := storetest.MustTake(t, store, beside)
	given := must.Get(store.Return(t.Context(), []core.Return{d.Return(0, beside), taken}))(t)
	assert.EqualValues(t, 7, given[0].Units)
	assert.EqualValues(t, 3, given[1].Units)
	c.Quota, c.Cost = largeLog, 0
	d = storetest.MustTake(t, store, c)
	assert.EqualValues(t, 849, d.Outcomes()[0].Remaining)
}

// TestAllAlgorithms has a rule of each algorithm in every call, with a log above 128, and then the
// algorithm of the next rule on each key: Redis takes the largest scripts.
func TestAllAlgorithms(t *testing.T) {
	now := start
	store := at(redistest.Client(t), &now)
	var charges []core.Charge
	for i, a := range core.Algorithms() {
		q := core.Quota{Algorithm: a, Limit: 200, Window: 60_000_000}
		switch {
		case a.Fields().Has(core.FieldBurst):
			q.Burst = 200
		case a.Fields().Has(core.FieldCells):
			q.Cells = 10
		case q.Bars():
			q.Bar = q.Window
		}
		charges = append(charges, core.Charge{Policy: "p", Rule: fmt.Sprint("r", i), Key: "k", Quota: q, Cost: 1, ID: uint64(i + 1)})
	}
	turned := slices.Clone(charges)
	for i := range turned {
		turned[i].Quota = charges[(i+1)%len(charges)].Quota
	}
	decisions := make(map[int]core.Decision)
	for i, list := range [][]core.Charge{charges, turned, charges} {
		list = slices.Clone(list)
		list[0].Reserve = 1
		decisions[i] = storetest.MustTake(t, store, list...)
		require.NoError(t, store.Take(t.Context(), []core.Ask{{Charges: list[:6]}, {Charges: list[5:]}}))
		for j := range list {
			list[j].Reserve, list[j].Debt = 0, true
		}
		storetest.MustTake(t, store, list...)
	}
	var returns []core.Return
	var leases []core.Charge
	var settled []core.Settlement
	held, hold := core.Ask{Charges: slices.Clone(charges)}, core.Hold{ID: core.HoldID{1}, Life: core.MinHold}
	for i, c := range charges {
		held.Charges[i].Key = "held"
		d := decisions[2]
		r := d.Return(i, c)
		if c.Quota.Leases() {
			leases = append(leases, c)
		} else {
			returns = append(returns, r)
		}
		if c.Quota.Holds() {
			r.Key = "held"
			settled = append(settled, core.Settlement{Return: r, Hold: hold.ID, Used: 2})
		}
	}
	require.NoError(t, store.Hold(t.Context(), &held, &hold))
	for i := range turned {
		turned[i].Key = "held"
	}
	storetest.MustTake(t, store, turned...)
	must.Get(store.Settle(t.Context(), settled))(t)
	must.Get(store.Return(t.Context(), returns))(t)
	must.Get(store.Renew(t.Context(), leases))(t)
	require.NoError(t, store.Release(t.Context(), leases))
}

// TestBrokenTallies tests that every call on a key of several algorithms is answered, or is an
// error that names the key, with any bytes of its value changed and at every length.
func TestBrokenTallies(t *testing.T) {
	race.Skip(t)
	client, all := clientForValues(t)
	random := rand.New(rand.NewPCG(1, 2))
	store := New(client, &patient)
	for i, s := range all {
		c, other := s.charge(1), all[(i+1+random.IntN(len(all)-1))%len(all)].charge(1)
		if c.Quota.Algorithm.Alike(other.Quota.Algorithm) {
			continue
		}
		require.NoError(t, client.Del(t.Context(), valueKey, returnedKey).Err())
		for range 2 {
			for _, c := range []core.Charge{c, other} {
				must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{c}))(t)
			}
		}
		value := []byte(client.Get(t.Context(), valueKey).Val())
		require.Equal(t, byte('y'), value[0])
		require.True(t, lua.IsState('y', int64(len(value))))
		answers := func(value []byte) {
			for _, c := range []core.Charge{c, other} {
				require.NoError(t, client.Set(t.Context(), valueKey, value, 0).Err())
				if _, err := storetest.Take(t.Context(), store, "p", []core.Charge{c}); err != nil && !errors.Is(err, lua.ErrValue) {
					t.Fatalf("%v\n%q\n%+v and %+v", err, value, c, other)
				}
			}
		}
		for range 200 {
			broken := slices.Clone(value)
			for range 1 + random.IntN(3) {
				broken[random.IntN(len(broken))] = []byte{0, 1, 255, byte(random.Uint32())}[random.IntN(4)]
			}
			answers(broken)
		}
		for size := 1; size < len(value); size++ {
			answers(value[:size])
		}
		for at := 1; at < len(value); { // each tally cut short, and what follows as it was
			first := at + 26 + int(binary.BigEndian.Uint16(value[at+21:]))
			size := int(binary.BigEndian.Uint16(value[first-2:]))
			for shorter := range size {
				answers(slices.Concat(value[:first-2], []byte{byte(shorter >> 8), byte(shorter)}, value[first:first+shorter], value[first+size:]))
			}
			at = first + size
		}
	}
}

// TestGridsBesideLog has two versions of a rule with cells in one call with a log: the script
// has the stored forms of both.
func TestGridsBesideLog(t *testing.T) {
	client := redistest.Client(t)
	now := start
	store := at(client, &now)
	for _, window := range []int64{60_000_000, 30_000_000, 60_000_000} {
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{
			{Rule: "log", Key: "k", Quota: core.Quota{Limit: 5, Window: 60_000_000}, Cost: 1},
			{Rule: "cells", Key: "k", Quota: core.Quota{Algorithm: core.SlidingCells, Limit: 5, Window: window, Cells: 10}, Cost: 1},
		}))(t)
		require.True(t, d.Allowed)
	}
}
