package prefetch

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
	"github.com/routelimit/limit/stores/storetest"
)

// TestRedis has three instances, each with all that surrounds a store, on one Redis.
func TestRedis(t *testing.T) {
	client := redistest.Client(t)
	for _, q := range []core.Quota{
		{Limit: 500, Window: 300_000},
		{Algorithm: core.SlidingCells, Limit: 500, Window: 300_000, Cells: 10},
	} {
		t.Run(q.Algorithm.String(), func(t *testing.T) {
			require.NoError(t, client.FlushDB(t.Context()).Err())
			var stores []core.Store
			for range 3 {
				own := redisstore.New(client, &redisstore.Options{Timeout: 10 * time.Second})
				stores = append(stores, refusals.New(guard.New(own, &guard.Options{Slow: 10 * time.Second})))
			}
			concurrently(t, stores, q)
		})
	}
}

// TestRedisHandsBack holds that what is not handed out is given back to Redis.
func TestRedisHandsBack(t *testing.T) {
	client := redistest.Client(t)
	q := core.Quota{Limit: 10_000, Window: 60_000_000}
	store := New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &Options{Rules: []Rule{{"p", "all"}}})
	for range 3_333 {
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "all", Quota: q, Cost: 1}}))(t)
		require.True(t, d.Allowed)
	}
	require.NoError(t, store.Close(t.Context()))
	d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "all", Quota: q, Cost: 0}}))(t)
	require.EqualValues(t, 10_000-3_333, d.Outcomes()[0].Remaining)
}

// TestOutage holds that permits that are held are handed out while the store fails,
// and that a guard below decides the other requests.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOne(t, perMinute)
		var failed error
		inner := &failing{Store: o.own, err: &failed}
		o.store = New(guard.New(inner, &guard.Options{Log: slog.New(slog.DiscardHandler)}), &Options{Rules: []Rule{{"p", "all"}}, Hold: hold})
		used := o.warm()
		failed = core.ErrUnavailable
		require.Equal(t, core.ModeExact, o.take(o.charge(1)).Mode)
		used++
		time.Sleep(2 * hold)
		for used < 1000 {
			d := o.take(o.charge(1))
			require.True(t, d.Allowed, "%d", used)
			require.Equal(t, core.ModeLocal, d.Mode)
			used++
			time.Sleep(100 * time.Microsecond)
		}
		require.False(t, o.take(o.charge(1)).Allowed)
		require.Zero(t, o.held())
		require.NoError(t, o.store.Close(o.ctx))
	})
}
