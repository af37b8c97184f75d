package memstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// holdsOf returns how many holds a store has, which must be as many as it counts.
func holdsOf(t *testing.T, s *Store) (n int) {
	t.Helper()
	counted := 0
	for i := range s.shards {
		counted += s.shards[i].held.n
		for _, h := range s.shards[i].held.keys {
			n += len(h.byID)
		}
	}
	require.Equal(t, n, counted)
	return n
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
		_, err := s.Settle(t.Context(), []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: 1}})
		require.NoError(t, err)
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
