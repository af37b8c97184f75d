package core

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSettling tells how much comes back to a bucket under a steady stream of
// reservations that are settled later: 4,000 tokens each, two a second, of
// 100,000 a minute; on average 3,000 are given back after 10 s.
func TestSettling(t *testing.T) {
	type event struct {
		at     int64
		settle *Return // nil to take
	}
	random := rand.New(rand.NewPCG(1, 2))
	q := Quota{Algorithm: TokenBucket, Limit: 100_000, Window: 60_000_000, Burst: 100_000}
	state := NewState(TokenBucket)
	var events []event
	now := int64(1_800_000_000_000_000)
	for range 1_200 {
		now += int64(random.ExpFloat64() * 500_000)
		events = append(events, event{at: now})
	}
	var admitted, asked, given int64
	for len(events) > 0 {
		e := events[0]
		events = events[1:]
		if e.settle != nil {
			asked += e.settle.Cost
			given += state.Return(e.settle, e.at)
			continue
		}
		d := Decide(e.at, []Charge{{Quota: q, Cost: 4_000}}, []State{state})
		if !d.Allowed {
			continue
		}
		admitted++
		settle := event{e.at + int64(random.ExpFloat64()*10_000_000), &Return{At: e.at, Remaining: d.Outcomes()[0].Remaining,
			Charge: Charge{Quota: q, Cost: 2_000 + random.Int64N(2_000)}}}
		i, _ := slices.BinarySearchFunc(events, settle.at, func(e event, at int64) int { return int(e.at - at) })
		events = slices.Insert(events, i, settle)
	}
	share := 100 * given / asked
	t.Logf("%d of 1200 admitted; %d of %d tokens came back: %d %%", admitted, given, asked, share)
	if admitted < 800 || share < 90 {
		t.Errorf("%d admitted, %d %% came back", admitted, share)
	}
}
