package limit_test

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

// borrowers are the algorithms with debts.
var borrowers = map[string]rules.Algorithm{
	"token bucket": limit.TokenBucket{Burst: 100},
	"leaky bucket": limit.LeakyBucket{Burst: 100},
	"cells":        limit.SlidingCells{Cells: 10},
}

// spend reserves 10 of 100 units and settles them at a cost.
func spend(t *testing.T, policy *limit.Policy, keys map[string]string, cost int64) {
	t.Helper()
	d, err := policy.Take(t.Context(), limit.Request{Keys: keys, Cost: 10, Settle: true})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.NoError(t, d.Settle(t.Context(), cost))
	require.ErrorIs(t, d.Settle(t.Context(), cost), limit.ErrSettled)
}

// TestDebt settles above the limit: the whole cost counts up to the debt, nobody is admitted
// before the key has repaid, and the rest is forgiven and counted.
func TestDebt(t *testing.T) {
	for name, algorithm := range borrowers {
		for _, row := range []struct{ cost, left, owed, forgiven int64 }{
			{10, 90, 0, 0}, {100, 0, 0, 0}, {101, 0, 1, 0}, {130, 0, 30, 0}, {150, 0, 50, 0}, {151, 0, 50, 1}, {1_000, 0, 50, 850},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var lines bytes.Buffer
					limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&lines, nil))})
					policy, err := limiter.Policy(limit.Named("model", limit.Rule{Name: "tokens", Key: limit.ByUser,
						Limit: 100, Window: time.Minute, Algorithm: algorithm, Debt: 50}))
					require.NoError(t, err)
					a := map[string]string{"user": "a"}
					spend(t, policy, a, row.cost)
					d, err := policy.Peek(t.Context(), limit.Request{Keys: a})
					require.NoError(t, err)
					for r := range d.Rules() {
						assert.Equal(t, row.left, r.Remaining)
						if _, cells := algorithm.(limit.SlidingCells); !cells {
							assert.Equal(t, time.Duration(100-row.left+row.owed)*600*time.Millisecond, r.ResetAfter, "0.6 s for each unit")
						}
					}
					assert.Equal(t, row.forgiven, operate.ReadStats(limiter).Forgiven)
					assert.Equal(t, row.forgiven > 0, bytes.Contains(lines.Bytes(), []byte("LIMIT-208")), lines.String())
					if row.left > 0 {
						return
					}
					take := func() limit.Decision {
						d, err := policy.Take(t.Context(), limit.Request{Keys: a})
						require.NoError(t, err)
						return d
					}
					refused := take()
					require.False(t, refused.Allowed)
					time.Sleep(refused.RetryAfter - time.Microsecond)
					require.False(t, take().Allowed, "the key owes until RetryAfter has passed")
					time.Sleep(time.Microsecond)
					require.True(t, take().Allowed)
				})
			})
		}
	}
}

// TestDebtOnRedis settles rules with and without debts beside each other, on one server and
// in several slots.
func TestDebtOnRedis(t *testing.T) {
	long := 8_000 * time.Hour // for which no unit comes back
	for name, spread := range map[string]int{"alone": 0, "spread": 3} {
		t.Run(name, func(t *testing.T) {
			limiter := limit.New(redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute, Spread: spread}), nil)
			policy, err := limiter.Policy(limit.Named("model",
				limit.Rule{Name: "bucket", Key: limit.ByUser, Limit: 100, Window: long, Algorithm: limit.TokenBucket{Burst: 100}, Debt: 50},
				limit.Rule{Name: "cells", Key: limit.Everyone, Limit: 100, Window: long, Algorithm: limit.SlidingCells{}, Debt: 1_000},
				limit.Rule{Name: "log", Key: limit.ByUser, Limit: 100, Window: long}))
			require.NoError(t, err)
			a := map[string]string{"user": "a"}
			spend(t, policy, a, 180)
			d, err := policy.Take(t.Context(), limit.Request{Keys: a, Cost: 100})
			require.NoError(t, err)
			require.False(t, d.Allowed)
			var waits []time.Duration
			for r := range d.Rules() {
				assert.Zero(t, r.Remaining, r.Name)
				waits = append(waits, r.RetryAfter.Round(long/100))
			}
			assert.Equal(t, []time.Duration{long * 150 / 100, waits[1], waits[2]}, waits, "100 units, and 50 that are owed")
			assert.EqualValues(t, 30, operate.ReadStats(limiter).Forgiven)
		})
	}
}

// TestDebtIsDeclared says what is wrong with a debt.
func TestDebtIsDeclared(t *testing.T) {
	set, err := limit.Parse("200k/1m per user token-bucket burst 20k settle 200 debt 20k")
	require.NoError(t, err)
	assert.EqualValues(t, 20_000, set.Rules()[0].Debt)
	assert.Contains(t, set.String(), "debt 20000")
	for name, rule := range map[string]limit.Rule{
		"below 0":   {Debt: -1, Algorithm: limit.TokenBucket{Burst: 5}},
		"too large": {Debt: core.MaxLimit + 1, Algorithm: limit.TokenBucket{Burst: 5}},
		"log":       {Debt: 1},
		"window":    {Debt: 1, Algorithm: limit.FixedWindow{}},
		"counter":   {Debt: 1, Algorithm: limit.SlidingCounter{}},
		"queue":     {Debt: 1, Algorithm: limit.Queue{Burst: 5}},
	} {
		rule.Key, rule.Limit, rule.Window = limit.Everyone, 10, time.Minute
		assert.ErrorContains(t, limit.Rules(rule).Validate(), "debt", name)
	}
}
