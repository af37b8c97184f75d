package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestResetCancelsDebts pays what was used before a reset, and what was used after it.
func TestResetCancelsDebts(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	for _, c := range everyAlgorithm("k") {
		if c.Quota.Algorithm == core.Distinct || c.Quota.Leases() || c.Quota.Bars() {
			continue
		}
		c.Policy, c.Cost = "p", 1
		require.True(t, storetest.MustTake(t, store, c).Allowed)
		reset := time.Now()
		require.NoError(t, storetest.Reset(t.Context(), store, "p", c.Rule, c.Key))
		owed := c
		owed.Debt, owed.Since = true, (time.Since(reset) + time.Minute).Microseconds()
		before := storetest.MustTake(t, store, owed)
		assert.Equal(t, c.Quota.Capacity()-c.Quota.Missing, before.Outcomes()[0].Remaining, "%v", c.Quota.Algorithm)
		owed.Since = 1
		after := storetest.MustTake(t, store, owed)
		assert.Equal(t, before.Outcomes()[0].Remaining-1, after.Outcomes()[0].Remaining, "%v", c.Quota.Algorithm)
		owed.Since = 0
		storetest.MustTake(t, store, owed)
		ttls(t, client, resetMemory)
	}
}

// TestLost asks about keys that have units, that have lost them, and that were reset.
func TestLost(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	c := core.Charge{Policy: "p", Rule: "r", Key: "full", Quota: core.Quota{Limit: 9, Window: 60_000_000}, Cost: 1}
	require.True(t, storetest.MustTake(t, store, c).Allowed)
	gone, reset := c, c
	gone.Key, reset.Key = "gone", "reset"
	require.NoError(t, store.Reset(t.Context(), []core.Charge{reset}))
	charges := []core.Charge{c, gone, reset}
	ages := must.Get(store.Lost(t.Context(), charges, 0))(t)
	assert.Equal(t, []int64{-1, 0, -2}, ages)
	time.Sleep(2 * time.Millisecond)
	require.True(t, storetest.MustTake(t, store, gone).Allowed)
	ages = must.Get(store.Lost(t.Context(), charges, 0))(t)
	assert.Greater(t, ages[1], int64(1_000), "other instances learn of it")
	ttls(t, client, resetMemory)
}
