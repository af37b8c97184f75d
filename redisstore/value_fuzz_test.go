package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fuzzloop"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

// quotasOfAllForms are one for each form of a stored state.
var quotasOfAllForms = []core.Quota{
	{Limit: 5, Window: 60_000_000}, {Limit: 5, Window: 100_000_000_000}, {Limit: 1000, Window: 60_000_000}, {Limit: 1000, Window: 100_000_000_000},
	{Algorithm: core.FixedWindow, Limit: 5, Window: 60_000_000}, {Algorithm: core.FixedWindow, Limit: 5, Window: 60_000_000, Aligned: true},
	{Algorithm: core.SlidingCells, Limit: 5, Window: 60_000_000, Cells: 10}, {Algorithm: core.SlidingCounter, Limit: 5, Window: 60_000_000},
	{Algorithm: core.TokenBucket, Limit: 5, Window: 60_000_000, Burst: 4, Missing: 1},
	{Algorithm: core.LeakyBucket, Limit: 5, Window: 60_000_000, Burst: 4},
	{Algorithm: core.Queue, Limit: 5, Window: 60_000_000, Burst: 4, MaxWait: 60_000_000},
	{Algorithm: core.Concurrency, Limit: 5, Window: 60_000_000},
}

// FuzzValue puts bytes of any kind in the place of a stored state and of what
// was given back, and makes every call on it. Each is answered, or is an error
// that names the key, and no other key is touched.
func FuzzValue(t *testing.F) {
	f := fuzzloop.New(t)
	client := redistest.Client(t)
	store := New(client, &patient)
	ctx := t.Context()
	charge := func(form uint8, cost int64) core.Charge {
		return core.Charge{Rule: "r", Key: "k", Cost: cost, Lease: 7, Quota: quotasOfAllForms[int(form)%len(quotasOfAllForms)]}
	}
	key, returned, other := lua.Key("limit", "p", "r", "k"), lua.ReturnedKey("limit", "p", "r", "k"), lua.Key("limit", "p", "r", "other")
	for form := range quotasOfAllForms {
		require.NoError(t, client.FlushDB(ctx).Err())
		c := charge(uint8(form), 2)
		d, err := store.Take(ctx, "p", []core.Charge{c})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		state := client.Get(ctx, key).Val()
		var back string
		if c.Quota.Algorithm != core.Concurrency {
			o := d.Outcomes()[0]
			c.Cost = 1
			_, err = store.Return(ctx, "p", []core.Return{{Charge: c, At: d.At, Remaining: o.Remaining, ResetAfter: o.ResetAfter}})
			require.NoError(t, err)
			back = client.Get(ctx, returned).Val()
		}
		f.Add(uint8(form), []byte(state), []byte(back), int64(1), d.At)
	}
	f.Fuzz(func(t *testing.T, form uint8, value, back []byte, cost, at int64) {
		c := charge(form, max(0, cost%8))
		put := func() {
			pipe := client.Pipeline()
			pipe.FlushDB(ctx)
			pipe.Set(ctx, key, value, time.Hour)
			pipe.Set(ctx, returned, back, time.Hour)
			pipe.Set(ctx, other, "theirs", 0)
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
		}
		left := func(err error) {
			if err != nil {
				require.ErrorIs(t, err, lua.ErrValue)
				require.False(t, errors.Is(err, core.ErrUnavailable), "%v", err)
				require.Equal(t, string(value), client.Get(ctx, key).Val(), "an error changes nothing")
			}
			require.Equal(t, "theirs", client.Get(ctx, other).Val())
			require.LessOrEqual(t, client.DBSize(ctx).Val(), int64(3))
			for _, k := range []string{key, returned} {
				require.NotEqual(t, time.Duration(-1), client.PTTL(ctx, k).Val(), "%s never expires", k)
			}
		}
		put()
		_, err := store.Take(ctx, "p", []core.Charge{c})
		left(err)
		put()
		if c.Quota.Algorithm == core.Concurrency {
			_, err = store.Renew(ctx, "p", []core.Charge{c})
			left(err)
			put()
			left(store.Release(ctx, "p", []core.Charge{c}))
			return
		}
		_, err = store.Return(ctx, "p", []core.Return{{Charge: c, At: max(0, at%core.MaxTime), Remaining: 3, ResetAfter: 60_000_000}})
		left(err)
	})
}
