package memstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/storetest"
)

// holdsOf returns how many holds a store has, which must be as many as it counts.
func holdsOf(t *testing.T, s *Store) (n int) {
	t.Helper()
	for i := range s.shards {
		for _, h := range s.shards[i].held.keys {
			n += len(h.byID)
		}
	}
	require.EqualValues(t, n, s.holding.Load())
	return n
}

// TestHoldsOfAKey has one key, of all requests or of a client, hold as much as the store has room
// for.
func TestHoldsOfAKey(t *testing.T) {
	const most = 256 * holdsPerKey
	for _, key := range []string{"", "k"} {
		now := int64(1_750_000_000_000_000)
		s := New(&Options{MaxKeys: 256, Now: func() int64 { return now }})
		c := core.Charge{Policy: "p", Rule: "r", Key: key, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 10 * most, Window: 3600_000_000}, Cost: 1}
		for i := range most + 1 {
			ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MinHold}
			require.NoError(t, s.Hold(t.Context(), &ask, &h))
			require.Equal(t, i == most, h.Found == core.HoldRefused, "%q: %d", key, i)
		}
		require.Equal(t, most, holdsOf(t, s))
	}
}

// TestHoldsAreBounded has new clients hold and settle, each once, under names that the store
// remembers for much longer than its units. Once there is room again, it holds again.
func TestHoldsAreBounded(t *testing.T) {
	const keys = 4096
	now := int64(1_750_000_000_000_000)
	s := New(&Options{MaxKeys: keys, Now: func() int64 { return now }})
	hold := func(id string) bool {
		c := core.Charge{Policy: "p", Rule: "r", Key: id, Quota: core.Quota{Limit: 10, Window: 1_000_000}, Cost: 1}
		ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf(id), Life: core.MinHold}
		require.NoError(t, s.Hold(t.Context(), &ask, &h))
		require.True(t, ask.Decision.Allowed)
		if h.Found == core.HoldRefused {
			return false
		}
		must.Get(s.Settle(t.Context(), []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: 1}}))(t)
		return true
	}
	held := 0
	for i := range 6 * keys {
		now += 2_000
		if hold(fmt.Sprint(i)) {
			held++
		}
	}
	require.Greater(t, held, 3*keys)
	require.LessOrEqual(t, holdsOf(t, s), holdsPerKey*keys)
	now += core.HoldMemory
	held = 0
	for i := range keys {
		now += 2_000
		if hold(fmt.Sprint("again ", i)) {
			held++
		}
	}
	require.Equal(t, keys, held)
}

// TestHoldsOfKeysThatLeave has clients leave what they held unsettled, and never come again. Once
// nothing of it counts, others have the room.
func TestHoldsOfKeysThatLeave(t *testing.T) {
	now := int64(1_750_000_000_000_000)
	s := New(&Options{MaxKeys: 4096, Now: func() int64 { return now }})
	fill := func(name string) (held int) {
		for i := range 64 * 272 { // of 64 clients
			c := core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(name, i%64), Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1024, Window: 3600_000_000}, Cost: 1}
			ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf(fmt.Sprint(name, " ", i)), Life: core.MinHold}
			require.NoError(t, s.Hold(t.Context(), &ask, &h))
			if h.Found != core.HoldRefused {
				held++
			}
		}
		return held
	}
	require.Equal(t, 4096*holdsPerKey, fill("a"))
	now += 1800_000_000 // their units still count
	require.Zero(t, fill("b"))
	now += 1801_000_000 + core.HoldMemory
	require.Equal(t, 4096*holdsPerKey, fill("c"))
	require.Equal(t, 4096*holdsPerKey, holdsOf(t, s))
}

// TestSettlesTwoLeasesOfAKey releases two leases of a key with a settlement, which another
// algorithm has charged: the first replaces the entry of the key.
func TestSettlesTwoLeasesOfAKey(t *testing.T) {
	s := New(nil)
	units := core.Charge{Policy: "p", Rule: "units", Cost: 1, Quota: core.Quota{Limit: 10, Window: 1_000_000}}
	slot := core.Charge{Policy: "p", Rule: "slots", Cost: 1, ID: 1, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 60_000_000}}
	before, other := units, slot
	before.Rule, other.ID = slot.Rule, 2
	storetest.MustTake(t, s, before)
	done, err := s.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: units}, Leases: []core.Charge{slot, other}}})
	require.NoError(t, err)
	require.Equal(t, core.HoldUnknown, done[0].Found)
	require.True(t, storetest.MustTake(t, s, slot).Allowed)
}
