package limit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGivenTerms has more overrides than package terms remembers. A decision with one of them
// has its limits, and makes no terms once they are known.
func TestGivenTerms(t *testing.T) {
	limits := map[string]int64{}
	l := New(nil, &Options{Override: func(_, rule, _ string) int64 { return limits[rule] }})
	p := mustPolicy(l, Named("p", MustParse("a: 1000/1h global plan pro 2000; b: 3000/1h per user; c: 5/1ms per user").Rules()...))
	take := func(plan string) []int64 {
		d, err := p.Take(t.Context(), Request{Keys: map[string]string{"user": "alice"}, Plan: plan})
		require.NoError(t, err)
		rules := slices.Collect(d.Rules())
		return []int64{rules[0].Limit, rules[1].Limit}
	}
	for i := range int64(2*1000 + 10) {
		limits["b"] = 5000 + i
		require.Equal(t, []int64{1000, 5000 + i}, take(""))
		require.Equal(t, []int64{2000, 5000 + i}, take("pro"))
	}
	clear(limits)
	require.Equal(t, []int64{1000, 3000}, take(""))
	limits["a"] = 1_000_000 // too large for the algorithm
	require.Equal(t, []int64{100_000, 3000}, take("pro"))

	limits["a"] = 7000
	request := Request{Keys: map[string]string{"user": "bob"}}
	most := 5.0 // under the race detector, where pools drop what is put back; making terms takes 40
	assert.Less(t, testing.AllocsPerRun(1000, func() { p.Take(t.Context(), request) }), most)
}
