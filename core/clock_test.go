package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnyClock steps the clock to any time that an int64 can have.
func TestAnyClock(t *testing.T) {
	quotas := []Quota{
		{Algorithm: SlidingLog, Limit: 3, Window: 1_000_000},
		{Algorithm: SlidingLog, Limit: 3, Window: MaxWindow},
		{Algorithm: FixedWindow, Limit: 3, Window: 1_000_000},
		{Algorithm: FixedWindow, Limit: 3, Window: 1_000_000, Aligned: true},
		{Algorithm: FixedWindow, Limit: 3, Window: MaxWindow, Calendar: Calendar{Unit: Month, Zone: time.UTC}},
		{Algorithm: SlidingCells, Limit: 3, Window: 1_000_000, Cells: 7},
		{Algorithm: SlidingCells, Limit: 3, Window: MaxWindow, Cells: 60},
		{Algorithm: SlidingCounter, Limit: 3, Window: 1_000_000},
		{Algorithm: SlidingCounter, Limit: MaxLimit, Window: MaxWindow},
		{Algorithm: TokenBucket, Limit: 3, Window: 1_000_000, Burst: 5, Missing: 2},
		{Algorithm: TokenBucket, Limit: MaxLimit, Window: MaxWindow, Burst: MaxLimit},
		{Algorithm: LeakyBucket, Limit: 3, Window: 1_000_000, Burst: 5},
		{Algorithm: LeakyBucket, Limit: 1, Window: MaxWindow, Burst: 10},
		{Algorithm: Queue, Limit: 3, Window: 1_000_000, Burst: 5, MaxWait: 700_000},
		{Algorithm: Queue, Limit: 1, Window: MaxWindow, Burst: 9},
		{Algorithm: Concurrency, Limit: 3, Window: 1_000_000},
		{Algorithm: Distinct, Limit: 3, Window: 1_000_000},
		{Algorithm: Ban, Limit: 3, Window: 1_000_000, Bar: 2_000_000, MaxBar: 5_000_000},
	}
	clocks := []int64{math.MinInt64, math.MinInt64 + 1, -MaxTime, -MaxWindow, -1_000_001, -1, 0, 1, 1_000_000, 1_750_000_000_000_000,
		MaxTime - 1, MaxTime, MaxTime + 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, q := range quotas {
		t.Run(fmt.Sprint(q), func(t *testing.T) {
			if err := q.Validate(); err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, 2))
			state := []State{NewState(q.Algorithm)}
			for range 20_000 {
				now := clocks[random.IntN(len(clocks))]
				if random.IntN(2) == 0 && now < MaxTime {
					now += random.Int64N(2_000_000)
				}
				c := Charge{Quota: q, Cost: random.Int64N(3), ID: 1 + random.Uint64N(5)}
				if random.IntN(8) == 0 {
					costs, ages := []int64{0, 1, 7, q.Limit, MaxCost}, []int64{0, 1, q.Window - 1, q.Window, q.Span(), MaxTime}
					c.Debt, c.Cost, c.Age = true, costs[random.IntN(len(costs))], ages[random.IntN(len(ages))]
				}
				d := Decide(now, []Charge{c}, state)
				o := d.Outcomes()[0]
				if o.Remaining < 0 || o.Remaining > q.Capacity() || o.RetryAfter < Never || o.MoreAfter < 0 || o.ResetAfter < 0 || d.Delay < 0 ||
					o.ResetAfter > 2*MaxFill || c.Debt && (!d.Allowed || d.Delay > 0) {
					t.Fatalf("at %d: %+v", now, d)
				}
				if d.At < 0 || d.At > MaxTime || d.At != now && now >= 0 && now <= MaxTime {
					t.Fatalf("at %d: %+v", now, d)
				}
				at := ClampTime(clocks[random.IntN(len(clocks))])
				switch {
				case random.IntN(2) == 0 || !d.Allowed || c.Cost == 0 || c.Debt:
				case q.Leases():
					state[0].Renew(&q, at, c.ID)
					state[0].Release(&q, at, c.ID)
				default:
					r := d.Return(0, c)
					if given := state[0].Return(&r, at); given < 0 || given > c.Cost {
						t.Fatalf("at %d: %+v gave %d", at, r, given)
					}
				}
			}
		})
	}
}

func TestTimeOf(t *testing.T) {
	d := NewDecision(100, MaxCharges)
	assert.EqualValues(t, 100, d.TimeOf(MaxCharges-1))
	before := d
	d.SetTimeOf(1, 90)
	d.SetTimeOf(2, 110)
	for i, want := range []int64{100, 90, 110, 100} {
		assert.Equal(t, want, d.TimeOf(i))
	}
	assert.EqualValues(t, 110, d.At, "the latest")
	assert.EqualValues(t, 100, before.TimeOf(1))
}

// TestSpan takes all units of new keys, and looks at them a [Quota.Span] later: they
// have no effect any more. Package guard relies on it, since it counts what was admitted
// without the store for so long.
func TestSpan(t *testing.T) {
	for _, a := range Algorithms() {
		q := Quota{Algorithm: a, Limit: 5, Window: 1_000_003}
		for field, set := range map[Fields]*int64{FieldBurst: &q.Burst, FieldCells: &q.Cells, FieldBar: &q.Bar} {
			if a.Fields().Has(field) {
				*set = q.Limit
			}
		}
		q.Bar *= 1_000_000
		require.NoError(t, q.Validate())
		quotas := []Quota{q}
		if a.Fields().Has(FieldAligned) {
			q.Aligned = true
			quotas = append(quotas, q)
		}
		for _, q := range quotas {
			for range 1000 {
				now := time.Now().UnixMicro() + rand.Int64N(10*q.Window)
				state := []State{NewState(a)}
				charge := []Charge{{Quota: q, Cost: q.Capacity(), ID: 1}}
				Decide(now, charge, state)
				require.LessOrEqual(t, state[0].Expires(), now+q.Span(), "%+v", q)
				d := Decide(now+q.Span(), charge, state)
				require.True(t, d.Allowed, "%+v", q)
			}
		}
	}
}
