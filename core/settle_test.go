package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
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

// A till notes what it is given back.
type till struct {
	released []Charge
	returned []Return
	errs     [2]error
}

func (l *till) Release(_ context.Context, charges []Charge) error {
	l.released = charges
	return l.errs[0]
}

func (l *till) Return(_ context.Context, returns []Return) ([]Returned, error) {
	l.returned = returns
	return make([]Returned, len(returns)), l.errs[1]
}

func TestUndo(t *testing.T) {
	lease := Charge{Rule: "lease", Quota: Quota{Algorithm: Concurrency, Limit: 2, Window: 1e6}, Cost: 1, ID: 7}
	units := Charge{Rule: "units", Quota: Quota{Limit: 2, Window: 1e6}, Cost: 2}
	look := Charge{Rule: "look", Quota: units.Quota}
	d := NewDecision(5, 3)
	d.Allowed = true
	d.Outcomes()[2].Remaining = 3

	var l till
	assert.NoError(t, Undo(t.Context(), &l, []Charge{look, lease, units}, &d))
	assert.Equal(t, []Charge{lease}, l.released)
	assert.Equal(t, []Return{d.Return(2, units)}, l.returned)
	assert.EqualValues(t, 5, l.returned[0].At)
	assert.EqualValues(t, 3, l.returned[0].Remaining)

	l = till{}
	assert.NoError(t, Undo(t.Context(), &l, []Charge{look}, &d))
	assert.Equal(t, till{}, l, "nothing to give back, and no call")

	gone, wrong := fmt.Errorf("gone: %w", ErrUnavailable), errors.New("wrong")
	for _, errs := range [][3]error{{gone, wrong, wrong}, {wrong, gone, wrong}, {nil, gone, gone}, {gone, nil, gone}, {nil, wrong, wrong}} {
		l = till{errs: [2]error{errs[0], errs[1]}}
		assert.Equal(t, errs[2], Undo(t.Context(), &l, []Charge{lease, units}, &d))
	}
}
