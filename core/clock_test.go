package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
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
