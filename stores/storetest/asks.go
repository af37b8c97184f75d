package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// asks tests several asks in one call.
func asks() []namedTest {
	return []namedTest{
		{"with reserves of their own", reservesOfAsks},
		{"invalid", invalidAsks},
		{"many rules", manyAsks},
	}
}

func takeAll(t *testing.T, h Harness, asks ...core.Ask) []core.Ask {
	t.Helper()
	require.NoError(t, h.Store.Take(t.Context(), asks), "asks %+v", asks)
	return asks
}

func askFor(charges ...core.Charge) core.Ask { return core.Ask{Charges: charges} }

// reservesOfAsks has asks on one key that leave different numbers of units to others.
func reservesOfAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	with := func(reserve int64) core.Ask {
		return askFor(core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 1, Reserve: reserve})
	}
	for i, ask := range takeAll(t, h, with(2), with(2), with(1), with(1), with(0), with(0)) {
		assert.Equal(t, i%2 == 0, ask.Decision.Allowed, "ask %d", i)
	}
}

// invalidAsks makes calls that a store must refuse, and checks that nothing was taken.
func invalidAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	good := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 1}
	other, bad := good, good
	other.Quota.Limit, bad.Cost = 4, -1
	many := make([]core.Ask, core.MaxCharges+1)
	for i := range many {
		many[i] = askFor(good)
	}
	for name, asks := range map[string][]core.Ask{
		"none": nil, "no charges": {askFor(good), askFor()}, "too many": many, "a negative cost": {askFor(good), askFor(bad)},
		"two quotas": {askFor(good), askFor(other)}, "a rule twice": {askFor(good), askFor(good, good)},
	} {
		assert.ErrorIs(t, h.Store.Take(t.Context(), asks), core.ErrCharges, name)
	}
	assert.EqualValues(t, 2, first(takeAll(t, h, askFor(good))[0].Decision).Remaining, "after invalid calls")
}

// manyAsks has as many asks as there can be.
func manyAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var list []core.Ask
	for i := range core.MaxCharges {
		list = append(list, askFor(core.Charge{Rule: fmt.Sprint("r", i/2), Key: fmt.Sprint(i / 4), Quota: core.Quota{Limit: 1, Window: sec}, Cost: 1}))
	}
	for i, ask := range takeAll(t, h, list...) {
		assert.Equal(t, i%2 == 0, ask.Decision.Allowed, "ask %d", i)
		assert.Len(t, ask.Decision.Outcomes(), 1, "ask %d", i)
	}
}
