package terms

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/rules"
)

var two = []rules.Rule{
	{Name: "a", Limit: 10, Window: time.Minute, Plans: map[string]int64{"pro": 20}},
	{Name: "b", Limit: 6, Window: time.Minute, Algorithm: rules.TokenBucket{}, Plans: map[string]int64{"pro": 12}, Reserve: map[string]int64{"high": 3}},
}

// TestOf compares the terms of callers without a plan, on one, and with an override.
func TestOf(t *testing.T) {
	classes := []string{"high", "default"}
	usual, pro := Of(two, classes, nil), OfPlans(two, classes)["pro"]
	assert.Equal(t, []int64{10, 6}, usual.Limits)
	assert.Equal(t, []string{`"a";q=10;w=60, "b";q=6;w=60`}, usual.Header)
	assert.Equal(t, [][]int64{{0, 0}, {0, 3}}, usual.Reserves, "the default class leaves half to the high one")
	assert.Equal(t, []int64{20, 12}, pro.Limits)
	assert.Equal(t, []string{"", "pro"}, pro.Variants, "a bucket on a plan is another one")

	given := new(Overrides).Of(two, classes, pro, Limits{0, 30})
	assert.Equal(t, []int64{20, 30}, given.Limits)
	assert.Equal(t, pro.Variants, given.Variants)
	assert.Nil(t, OfPlans([]rules.Rule{{Name: "a", Limit: 1, Window: time.Minute}}, classes))
}

// TestOverridesAreBounded makes more terms than are remembered.
func TestOverridesAreBounded(t *testing.T) {
	usual, o := Of(two, nil, nil), new(Overrides)
	for i := range int64(2*most + 10) {
		limits := Limits{1000 + i}
		first := o.Of(two, nil, usual, limits)
		require.Equal(t, []int64{1000 + i, 6}, first.Limits)
		require.Same(t, first, o.Of(two, nil, usual, limits))
		require.LessOrEqual(t, len(o.terms), most)
	}
}
