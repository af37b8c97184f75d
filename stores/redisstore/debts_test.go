package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// TestDebtOutlivesItsWindow has a key owe more than its window holds. The key of Redis lives until
// the debt is paid, and the next window begins with it.
func TestDebtOutlivesItsWindow(t *testing.T) {
	client, now := redistest.Client(t), start
	redis, memory := at(client, &now), memstore.New(&memstore.Options{Now: func() int64 { return now }})
	const hour = 3600_000_000
	for name, q := range map[string]core.Quota{
		"own":      {Algorithm: core.FixedWindow, Window: hour},
		"aligned":  {Algorithm: core.FixedWindow, Window: hour, Aligned: true},
		"calendar": {Algorithm: core.FixedWindow, Window: core.Month.Usual(), Calendar: core.Calendar{Unit: core.Month, Zone: time.UTC}},
		"bucket":   {Algorithm: core.TokenBucket, Window: hour, Burst: 10},
	} {
		q.Limit = 10
		c := core.Charge{Policy: "p", Rule: name, Key: "k", Cost: 10, MaxDebt: 8, Quota: q}
		take := func(cost int64, debt bool) (core.Outcome, bool) {
			c.Cost, c.Debt = cost, debt
			got, want := storetest.MustTake(t, redis, c), storetest.MustTake(t, memory, c)
			require.Equal(t, want.Outcomes(), got.Outcomes(), name)
			return got.Outcomes()[0], got.Allowed
		}
		admits := func(cost int64) bool {
			_, ok := take(cost, false)
			return ok
		}
		require.True(t, admits(10))
		take(6, true)
		owing, _ := take(0, false)
		reset := owing.ResetAfter
		lives := client.PTTL(t.Context(), lua.Key("limit", &c)).Val() - time.Duration(redis.grace)*time.Millisecond
		require.Greater(t, lives, core.Duration(reset)-5*time.Minute, name) // which a test never takes
		now += reset/2 + 1
		if q.Algorithm == core.FixedWindow {
			require.False(t, admits(5), name)
			require.True(t, admits(4), name)
		}
		now += 3 * reset
		paid, _ := take(0, false)
		require.EqualValues(t, 10, paid.Remaining, name)
	}
}
