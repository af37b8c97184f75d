package limit_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
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
	"window":       limit.FixedWindow{},
}

// spend reserves 10 of 100 units and settles them at a cost.
func spend(t *testing.T, policy *limit.Policy, keys map[string]string, cost int64) {
	t.Helper()
	d := must.Get(policy.Take(t.Context(), limit.Request{Keys: keys, Cost: 10, Settle: true}))(t)
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
					policy := must.Get(limiter.Policy(limit.Named("model", limit.Rule{Name: "tokens", Key: limit.ByUser,
						Limit: 100, Window: time.Minute, Algorithm: algorithm, Debt: 50})))(t)
					a := map[string]string{"user": "a"}
					spend(t, policy, a, row.cost)
					d := must.Get(policy.Peek(t.Context(), limit.Request{Keys: a}))(t)
					for r := range d.Rules() {
						assert.Equal(t, row.left, r.Remaining)
						switch algorithm.(type) {
						case limit.TokenBucket, limit.LeakyBucket:
							assert.Equal(t, time.Duration(100-row.left+row.owed)*600*time.Millisecond, r.ResetAfter, "0.6 s for each unit")
						}
					}
					assert.Equal(t, row.forgiven, operate.ReadStats(limiter).Forgiven)
					assert.Equal(t, row.forgiven > 0, bytes.Contains(lines.Bytes(), []byte("code=LIMIT-208 policy=model rules=tokens units=")), lines.String())
					if row.left > 0 {
						return
					}
					take := func() limit.Decision {
						d := must.Get(policy.Take(t.Context(), limit.Request{Keys: a}))(t)
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

// TestDebtOfMonths settles above a month's limit at its end. The next month begins with what the
// key owes, up to a limit of it, and the one after that is full.
func TestDebtOfMonths(t *testing.T) {
	for _, row := range []struct {
		debt, cost int64
		february   int64
	}{
		{80, 100, 100}, {80, 101, 99}, {80, 150, 50}, {80, 500, 20}, {300, 200, 0}, {300, 350, 0},
	} {
		synctest.Test(t, func(t *testing.T) { // it begins with the year 2000
			limiter := limit.New(nil, nil)
			month := limit.Rule{Name: "budget", Key: limit.ByUser, Limit: 100, Debt: row.debt,
				Algorithm: limit.FixedWindow{Calendar: core.Calendar{Unit: core.Month, Zone: time.UTC}}}
			policy := must.Get(limiter.Policy(limit.Named("model", month)))(t)
			a := map[string]string{"user": "a"}
			peek := func() limit.RuleDecision {
				d := must.Get(policy.Peek(t.Context(), limit.Request{Keys: a}))(t)
				return slices.Collect(d.Rules())[0]
			}
			until := func(month time.Month) time.Duration {
				return time.Until(time.Date(2000, month, 1, 0, 0, 0, 0, time.UTC))
			}
			time.Sleep(until(time.February) - time.Minute)
			spend(t, policy, a, row.cost)
			refused := peek()
			require.Zero(t, refused.Remaining)
			switch {
			case row.february == 100:
				require.Equal(t, until(time.February), refused.ResetAfter)
			default:
				require.Equal(t, until(time.March), refused.ResetAfter)
			}
			next := time.February
			if row.february == 0 {
				next = time.March
			}
			require.Equal(t, until(next), refused.RetryAfter)
			time.Sleep(until(time.February))
			require.Equal(t, row.february, peek().Remaining)
			if row.february > 0 {
				d := must.Get(policy.Take(t.Context(), limit.Request{Keys: a, Cost: row.february}))(t)
				require.True(t, d.Allowed)
			}
			require.Zero(t, peek().Remaining)
			require.Equal(t, until(time.March), peek().RetryAfter)
			time.Sleep(until(time.March))
			require.EqualValues(t, 100, peek().Remaining)
		})
	}
}

// TestDebtOnRedis settles rules with and without debts beside each other, on one server and
// in several slots.
func TestDebtOnRedis(t *testing.T) {
	long := 8_000 * time.Hour // for which no unit comes back
	for name, spread := range map[string]int{"alone": 0, "spread": 3} {
		t.Run(name, func(t *testing.T) {
			limiter := limit.New(redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute, Spread: spread}), nil)
			policy := must.Get(limiter.Policy(limit.Named("model",
				limit.Rule{Name: "bucket", Key: limit.ByUser, Limit: 100, Window: long, Algorithm: limit.TokenBucket{Burst: 100}, Debt: 50},
				limit.Rule{Name: "cells", Key: limit.Everyone, Limit: 100, Window: long, Algorithm: limit.SlidingCells{}, Debt: 1_000},
				limit.Rule{Name: "log", Key: limit.ByUser, Limit: 100, Window: long})))(t)
			a := map[string]string{"user": "a"}
			spend(t, policy, a, 180)
			d := must.Get(policy.Take(t.Context(), limit.Request{Keys: a, Cost: 100}))(t)
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
	set := must.Get(limit.Parse("200k/1m per user token-bucket burst 20k settle 200 debt 20k"))(t)
	assert.EqualValues(t, 20_000, set.Rules()[0].Debt)
	assert.Contains(t, set.String(), "debt 20000")
	for name, rule := range map[string]limit.Rule{
		"below 0":   {Debt: -1, Algorithm: limit.TokenBucket{Burst: 5}},
		"too large": {Debt: core.MaxLimit + 1, Algorithm: limit.TokenBucket{Burst: 5}},
		"log":       {Debt: 1},
		"counter":   {Debt: 1, Algorithm: limit.SlidingCounter{}},
		"queue":     {Debt: 1, Algorithm: limit.Queue{Burst: 5}},
	} {
		rule.Key, rule.Limit, rule.Window = limit.Everyone, 10, time.Minute
		assert.ErrorContains(t, limit.Rules(rule).Validate(), "debt", name)
	}
}

// TestDebtBalances has 500 streams of a language model on one key reserve 1,000 tokens each and
// use 300 to 3,000, spread over their length; a tenth of the clients leave early. With a bucket
// and a debt of a tenth of the limit, a window holds little more than the limit, and the mean is
// the limit. Without the debt, what was reserved too low is free.
func TestDebtBalances(t *testing.T) {
	length, slack := 20*time.Second, 0.0
	if race.Enabled {
		length, slack = 10*time.Second, 0.05
	}
	const most, window = 200_000, 2 * time.Second
	for _, row := range []struct {
		debt                           int64
		worstAbove, worst, mean, under float64
	}{
		{debt: most / 10, worst: 1.15, mean: 0.95, under: 1.01},
		{debt: 0, worstAbove: 1.25, worst: 2, mean: 1.2, under: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := limit.New(nil, nil)
			policy := must.Get(limiter.Policy(limit.Named("model", limit.Rule{Name: "tokens", Key: limit.Everyone,
				Limit: most, Window: window, Algorithm: limit.TokenBucket{Burst: most / 10}, Debt: row.debt})))(t)
			var mu sync.Mutex
			ticks := make([]int64, 3_000) // of 10 ms, what was used in each
			begin := time.Now()
			end := begin.Add(length)
			var streams sync.WaitGroup
			for i := range 500 {
				streams.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 49))
					for time.Now().Before(end) {
						d, err := policy.Take(t.Context(), limit.Request{Cost: 1_000, Settle: true})
						assert.NoError(t, err)
						if !d.Allowed {
							time.Sleep(d.RetryAfter + rand.N(20*time.Millisecond))
							continue
						}
						cost, chunks := int64(0), 3+random.Int64N(28)
						if random.IntN(10) == 0 {
							chunks = 1 + random.Int64N(chunks)
						}
						for range chunks {
							time.Sleep(20*time.Millisecond + rand.N(30*time.Millisecond))
							cost += 100
							mu.Lock()
							ticks[time.Since(begin)/(10*time.Millisecond)] += 100
							mu.Unlock()
						}
						assert.NoError(t, d.Settle(t.Context(), cost))
					}
				})
			}
			streams.Wait()
			sum, highest, total := int64(0), int64(0), int64(0)
			for i := 500; i < int(length/(10*time.Millisecond)); i++ { // after 5 s
				total += ticks[i]
				if sum += ticks[i]; i >= 700 {
					sum -= ticks[i-200]
				}
				highest = max(highest, sum)
			}
			worst, mean := float64(highest)/most, float64(total)/most/((length-5*time.Second).Seconds()/window.Seconds())
			t.Logf("debt %d: worst window %.2f, mean %.3f of the limit, %d forgiven", row.debt, worst, mean, operate.ReadStats(limiter).Forgiven)
			assert.Less(t, row.worstAbove, worst)
			assert.Less(t, worst, row.worst)
			assert.Greater(t, mean, row.mean-slack)
			assert.Less(t, mean, row.under+slack)
		})
	}
}

// TestDebtsOfRules settles above the debts of two rules: one line says which, and how much in all.
func TestDebtsOfRules(t *testing.T) {
	var lines bytes.Buffer
	limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&lines, nil))})
	rule := limit.Rule{Key: limit.Everyone, Limit: 100, Window: time.Minute, Algorithm: limit.FixedWindow{}, Debt: 50}
	tokens, cents, rows := rule, rule, rule
	tokens.Name, cents.Name, rows.Name = "tokens", "cents", "rows"
	policy := must.Get(limiter.Policy(limit.Named("model", tokens, cents, rows)))(t)
	d := must.Get(policy.Take(t.Context(), limit.Request{Settle: true}))(t)
	require.NoError(t, d.SettleCosts(t.Context(), map[string]int64{"tokens": 151, "cents": 1150, "rows": 150}))
	assert.Contains(t, lines.String(), `code=LIMIT-208 policy=model rules="tokens, cents" units=1001`)
}

// TestDebtOfShadow counts nothing as forgiven that a rule which only watches has not taken.
func TestDebtOfShadow(t *testing.T) {
	limiter := limit.New(nil, nil)
	policy := must.Get(limiter.Policy(limit.Named("model",
		limit.Rule{Name: "watched", Key: limit.Everyone, Limit: 100, Window: time.Hour, Algorithm: limit.TokenBucket{Burst: 100}, Debt: 50, Shadow: &rules.Shadow{}},
		limit.Rule{Name: "enforced", Key: limit.Everyone, Limit: 1_000, Window: time.Hour, Algorithm: limit.TokenBucket{Burst: 1_000}, Debt: 50})))(t)
	spend(t, policy, nil, 500)
	assert.Zero(t, operate.ReadStats(limiter).Forgiven)
	spend(t, policy, nil, 800)
	assert.EqualValues(t, 250, operate.ReadStats(limiter).Forgiven)
}
