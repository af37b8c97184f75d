package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
