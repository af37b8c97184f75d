package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/race"
)

func TestValidateFields(t *testing.T) {
	const second, year = 1_000_000, 365 * 24 * 3600 * 1_000_000
	quota := func(a Algorithm, change func(*Quota)) Quota {
		q := Quota{Algorithm: a, Limit: 10, Window: second}
		switch a {
		case SlidingCells:
			q.Cells = 10
		case TokenBucket, LeakyBucket:
			q.Burst = 5
		}
		change(&q)
		return q
	}
	for _, test := range []struct {
		algorithm Algorithm
		change    func(*Quota)
		words     string // none if it is valid
	}{
		{FixedWindow, func(q *Quota) { q.Limit = MaxLimit }, ""},
		{FixedWindow, func(q *Quota) { q.Limit = MaxLimit + 1 }, "limit 1000000000001: write at most 1000000000000"},
		{FixedWindow, func(q *Quota) { q.Limit = 0 }, "limit 0: write at least 1"},
		{FixedWindow, func(q *Quota) { q.Window = 999 }, "window of 999 µs: write between 1ms and 366 days"},
		{FixedWindow, func(q *Quota) { q.Aligned = true }, ""},
		{FixedWindow, func(q *Quota) { q.Calendar = Calendar{Month, time.UTC} }, ""},
		{FixedWindow, func(q *Quota) { q.Aligned, q.Calendar = true, Calendar{Day, time.UTC} }, "aligned and calendar: write one of them"},
		{FixedWindow, func(q *Quota) { q.Calendar.Zone = time.UTC }, "calendar unit 0: write Hour, Day, Week or Month"},
		{FixedWindow, func(q *Quota) { q.Calendar = Calendar{Month + 1, time.UTC} }, "calendar unit 5: write Hour"},
		{FixedWindow, func(q *Quota) { q.Calendar.Unit = Day }, "without a time zone: write one, such as time.UTC"},
		{FixedWindow, func(q *Quota) { q.Burst = 1 }, "burst is for token-bucket, leaky-bucket or queue: choose that algorithm, or leave it out (this rule is fixed-window)"},

		{SlidingCells, func(q *Quota) { q.Cells = 2 }, ""},
		{SlidingCells, func(q *Quota) { q.Cells = MaxCells }, ""},
		{SlidingCells, func(q *Quota) { q.Cells = 1 }, "1 cells: write 2 to 60"},
		{SlidingCells, func(q *Quota) { q.Cells = MaxCells + 1 }, "61 cells: write 2 to 60"},
		{SlidingCells, func(q *Quota) { q.Aligned = true }, "(this rule is sliding-cells)"},

		{SlidingCounter, func(q *Quota) { q.Limit = MaxLimit }, ""},
		{SlidingCounter, func(q *Quota) { q.Cells = 2 }, "cells is for sliding-cells: choose"},
		{SlidingCounter, func(q *Quota) { q.Calendar = Calendar{Day, time.UTC} }, "(this rule is sliding-counter)"},

		{TokenBucket, func(q *Quota) { q.Burst, q.Limit = MaxLimit, MaxLimit }, ""},
		{TokenBucket, func(q *Quota) { q.Burst = 0 }, "burst 0: write 1 to 1000000000000"},
		{TokenBucket, func(q *Quota) { q.Burst = MaxLimit + 1 }, "burst 1000000000001: write 1 to"},
		{TokenBucket, func(q *Quota) { q.Limit, q.Window, q.Burst = 1, year, 10 }, ""},
		{TokenBucket, func(q *Quota) { q.Limit, q.Window, q.Burst = 1, year, 11 }, "burst 11 takes more than 10 years to come back: write a smaller one"},
		{TokenBucket, func(q *Quota) { q.Missing = 5 }, ""},
		{TokenBucket, func(q *Quota) { q.Missing = 6 }, "6 missing: write 0 for a full bucket to 5 for an empty one"},
		{TokenBucket, func(q *Quota) { q.Missing = -1 }, "-1 missing: write 0"},
		{TokenBucket, func(q *Quota) { q.MaxWait = 1 }, "(this rule is token-bucket)"},

		{LeakyBucket, func(q *Quota) { q.Burst = 1 }, ""},
		{LeakyBucket, func(q *Quota) { q.Burst = -1 }, "burst -1: write 1 to"},
		{LeakyBucket, func(q *Quota) { q.Missing = 1 }, "(this rule is leaky-bucket)"},

		{Queue, func(*Quota) {}, ""},
		{Queue, func(q *Quota) { q.Burst, q.MaxWait = 7, MaxWindow }, ""},
		{Queue, func(q *Quota) { q.Burst = -1 }, "burst -1: write how many may wait, 0 to"},
		{Queue, func(q *Quota) { q.Limit, q.Window, q.Burst = 1, year, 11 }, "burst 11 takes more than 10 years to pass: write a smaller one"},
		{Queue, func(q *Quota) { q.MaxWait = -1 }, "wait of -1µs: write 0 for any, or at most 366 days"},
		{Queue, func(q *Quota) { q.MaxWait = MaxWindow + 1 }, "or at most 366 days"},
		{Queue, func(q *Quota) { q.Missing = 1 }, "(this rule is queue)"},

		{SlidingLog, func(q *Quota) { q.Limit = MaxLimit + 1 }, "write at most 100000, or use sliding-cells"},
		{SlidingLog, func(q *Quota) { q.Burst = 1 }, "(this rule is sliding-log)"},
		{Concurrency, func(q *Quota) { q.Limit = MaxLeases }, ""},
		{Concurrency, func(q *Quota) { q.Limit = MaxLeases + 1 }, "limit 10001 is too large for concurrency, which lists each lease: write at most 10000"},
		{Concurrency, func(q *Quota) { q.Burst = 1 }, "(this rule is concurrency)"},
		{Algorithm(len(algorithms)), func(*Quota) {}, "write one of the constants, such as TokenBucket"},
	} {
		q := quota(test.algorithm, test.change)
		err := q.Validate()
		switch {
		case test.words == "" && err != nil:
			t.Errorf("%+v: %v", q, err)
		case test.words != "" && (err == nil || !strings.Contains(err.Error(), test.words)):
			t.Errorf("%+v: %v; want %q", q, err, test.words)
		}
	}
}

// TestValidateAgrees tests that charges are refused for exactly those quotas that
// Validate refuses, and that every fault has its own words.
func TestValidateAgrees(t *testing.T) {
	race.Skip(t)
	random := rand.New(rand.NewPCG(1, 1))
	pick := func(numbers ...int64) int64 { return numbers[random.IntN(len(numbers))] }
	valid := 0
	for range 100_000 {
		q := Quota{Algorithm: Algorithm(random.IntN(9)), Limit: pick(-1, 0, 1, 5, MaxLog, MaxLog+1, MaxLeases, MaxLeases+1, MaxLimit, MaxLimit+1),
			Window: pick(0, MinWindow, 1_000_000, MaxWindow, MaxWindow+1), Burst: pick(-1, 0, 0, 1, 5, MaxLimit, MaxLimit+1),
			Cells: pick(0, 0, 0, 1, 2, MaxCells, MaxCells+1), Missing: pick(0, 0, 0, -1, 1, 6), MaxWait: pick(0, 0, 0, -1, 1, MaxWindow+1),
			Aligned: random.IntN(4) == 0, Calendar: Calendar{Unit: CalendarUnit(pick(0, 0, 0, 1, 9))}}
		if random.IntN(2) == 0 {
			q.Calendar.Zone = time.UTC
		}
		err := q.Validate()
		if err == nil {
			valid++
		}
		charges := ValidateCharges([]Charge{{Rule: "r", Quota: q}})
		if (err == nil) != (charges == nil) {
			t.Fatalf("%+v: ValidateCharges returns %v, Validate returns %v", q, charges, err)
		}
		if err != nil {
			for _, words := range strings.Split(err.Error(), "\n") {
				if words == "" || strings.Contains(words, "%!") {
					t.Fatalf("%+v: %q", q, err)
				}
			}
		}
	}
	if valid == 0 {
		t.Error("no quota was valid")
	}
}

// TestCellsRelaid tests that what is in the window of a changed quota counts,
// though it lay cells behind in the old one.
func TestCellsRelaid(t *testing.T) {
	const second = 1_000_000
	old := Quota{Algorithm: SlidingCells, Limit: 10, Window: 1_000 * second, Cells: 10}
	brief := Quota{Algorithm: SlidingCells, Limit: 10, Window: 10 * second, Cells: 10}
	state := []State{NewState(SlidingCells)}
	take := func(at int64, q Quota, cost, remaining int64) {
		t.Helper()
		d := Decide(at, []Charge{{Quota: q, Cost: cost}}, state)
		if got := d.Outcomes()[0].Remaining; got != remaining {
			t.Errorf("at %d: %d remain, want %d", at, got, remaining)
		}
	}
	take(1_000*second-1, old, 3, 7) // the end of a cell
	take(1_000*second, old, 2, 5)   // the beginning of the next
	take(1_005*second, brief, 0, 5) // both are in the last 10 s
	if got := state[0].Expires(); got <= 1_005*second {
		t.Errorf("expires at %d", got)
	}
	take(1_010*second, brief, 0, 8) // the first cell has left
	take(1_011*second-1, brief, 0, 8)
	take(1_011*second, brief, 0, 10)
}

// TestBucketBurstLowered tests that nobody waits for more than a whole bucket.
func TestBucketBurstLowered(t *testing.T) {
	const second = 1_000_000
	large := Quota{Algorithm: TokenBucket, Limit: 1_000_000, Window: second, Burst: 1_000_000}
	small := Quota{Algorithm: TokenBucket, Limit: 1, Window: second, Burst: 2}
	state := []State{NewState(TokenBucket)}
	Decide(0, []Charge{{Quota: large, Cost: 1_000_000}}, state)
	d := Decide(0, []Charge{{Quota: small, Cost: 1}}, state)
	if got, want := d.Outcomes()[0], (Outcome{RetryAfter: second, ResetAfter: 2 * second}); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestWindowExpires tests that a look at a window that has passed does not keep
// it for longer.
func TestWindowExpires(t *testing.T) {
	q := Quota{Algorithm: FixedWindow, Limit: 3, Window: 1_000}
	w := &windowState{}
	w.Advance(&q, 5_000)
	w.Take(1, 0)
	if got := w.Expires(); got != 6_000 {
		t.Errorf("expires at %d, want 6000", got)
	}
	w.Advance(&q, 6_000)
	if got := w.Expires(); got > 6_000 {
		t.Errorf("expires at %d after its end", got)
	}
}

func TestValidateAsks(t *testing.T) {
	one := Charge{Policy: "p", Rule: "r", Variant: "v", Key: "k", Quota: Quota{Limit: 1, Window: MinWindow}, Cost: 1}
	with := func(change func(*Charge)) Charge { c := one; change(&c); return c }
	rule := with(func(c *Charge) { c.Rule = "other" })
	variant := with(func(c *Charge) { c.Variant = "" })
	policy := with(func(c *Charge) { c.Policy = "" })
	limit := with(func(c *Charge) { c.Quota.Limit = 2 })
	limitOfKey := with(func(c *Charge) { c.Quota.Limit, c.Key = 2, "other" })
	limitOfVariant := with(func(c *Charge) { c.Quota.Limit, c.Variant = 2, "w" })
	low, high, most := with(func(c *Charge) { c.Reserve = -1 }), with(func(c *Charge) { c.Reserve = MaxCost + 1 }), with(func(c *Charge) { c.Reserve = MaxCost })
	of := func(charges ...Charge) Ask { return Ask{Charges: charges} }
	eight := make([]Charge, 8)
	for i := range eight {
		eight[i] = with(func(c *Charge) { c.Rule = strings.Repeat("x", i) })
	}
	for _, asks := range [][]Ask{
		{of(one)}, {of(one, rule, variant, policy)}, {of(one), of(one)}, {of(one), of(limitOfKey)}, {of(one), of(limitOfVariant)},
		{of(eight...), of(eight...)}, slices.Repeat([]Ask{of(one)}, MaxCharges), {of(most)},
	} {
		if err := ValidateAsks(asks); err != nil {
			t.Errorf("%+v: %v", asks, err)
		}
	}
	for words, asks := range map[string][]Ask{
		"no ask": nil, "0 of them: a decision takes": {of(one), of()}, "charged twice": {of(one), of(one, rule, limitOfKey)},
		"two asks charge one key under different quotas": {of(rule), of(rule, one), of(limit)},
		"17 of them: a call takes":                       {of(eight...), of(eight...), of(one)}, "cost -1": {of(one), of(with(func(c *Charge) { c.Cost = -1 }))},
		"reserve -1: write 0 to": {of(low)}, "reserve 281474976710656: write 0 to": {of(high)},
	} {
		if err := ValidateAsks(asks); !errors.Is(err, ErrCharges) || !strings.Contains(err.Error(), words) {
			t.Errorf("error is %v, want %q", err, words)
		}
	}
}

func TestTake(t *testing.T) {
	c := Charge{Rule: "r", Quota: Quota{Limit: 1, Window: MinWindow}, Cost: 1}
	d, err := Take(t.Context(), taker{}, []Charge{c})
	if err != nil || d.At != 7 || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := Take(t.Context(), taker{}, nil); err == nil || d.At != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A taker decides at 7, on states that are new.
type taker struct{ Store }

func (taker) Take(_ context.Context, asks []Ask) error {
	for i := range asks {
		asks[i].Decision = NewDecision(7, 1)
		asks[i].Decision.Allowed = true
	}
	return ValidateAsks(asks)
}

// TestValid checks that a quota is valid if nothing is wrong with it.
func TestValid(t *testing.T) {
	race.Skip(t)
	r := rand.New(rand.NewPCG(1, 2))
	some := func(values ...int64) int64 { return values[r.IntN(len(values))] }
	valid := 0
	for range 200_000 {
		q := Quota{Algorithm: Algorithm(r.IntN(len(algorithms) + 1)), Limit: some(-1, 0, 1, 100, MaxLog, MaxLog+1, MaxLimit, MaxLimit+1),
			Window: some(0, MinWindow-1, MinWindow, MaxWindow, MaxWindow+1)}
		for _, field := range []*int64{&q.Burst, &q.Cells, &q.Missing, &q.MaxWait, &q.Bar, &q.MaxBar} {
			if r.IntN(6) == 0 {
				*field = some(-1, 1, 2, MinWindow)
			}
		}
		if r.IntN(6) == 0 {
			q.Aligned = true
		}
		if r.IntN(6) == 0 {
			q.Calendar.Unit = 1
		}
		require.Equal(t, q.Validate() == nil, q.valid(), "%+v", q)
		if q.valid() {
			valid++
		}
	}
	require.Greater(t, valid, 1_000)
}
