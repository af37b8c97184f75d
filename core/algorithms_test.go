package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/race"
)

func TestAlgorithms(t *testing.T) {
	seen := make(map[string]bool)
	for i, a := range Algorithms() {
		assert.EqualValues(t, i, a, "the numbers are stored, and have no gaps")
		word := a.String()
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, word)
		assert.False(t, seen[word], "%s twice", word)
		seen[word] = true
		parsed, ok := ParseAlgorithm(word)
		assert.True(t, ok)
		assert.Equal(t, a, parsed)
		assert.NotNil(t, NewState(a))
	}
	for _, word := range []string{"", "sliding", "algorithm 255"} {
		_, ok := ParseAlgorithm(word)
		assert.False(t, ok, word)
	}
}

// TestUnknownAlgorithm tests that an unknown number is never counted by another
// algorithm.
func TestUnknownAlgorithm(t *testing.T) {
	unknown := Algorithm(len(algorithms))
	assert.Panics(t, func() { NewState(unknown) })
	q := Quota{Algorithm: unknown, Limit: 1, Window: MinWindow}
	assert.ErrorContains(t, q.Validate(), "unknown algorithm")
	assert.ErrorIs(t, ValidateCharges([]Charge{{Quota: q}}), ErrCharges)
	assert.Zero(t, q.Span())
}

// TestClone tests that a copy shares nothing with its state.
func TestClone(t *testing.T) {
	for _, a := range algorithmsBut() {
		random := rand.New(rand.NewPCG(4, uint64(a)))
		for range 200 {
			q := someQuota(t, random, a)
			q.Missing = 0
			charges := []Charge{{Quota: q, Cost: 1}}
			state := NewState(a)
			d := Decide(1_000_000, charges, []State{state})
			r := d.Return(0, charges[0])
			copied := state.Clone()
			room := copied.Advance(&q, 1_000_000)
			state.Return(&r, 1_000_000)
			Decide(1_000_000, charges, []State{state})
			Decide(1_000_000, charges, []State{state})
			require.Equal(t, room, copied.Advance(&q, 1_000_000), "%+v", q)
		}
	}
}

// TestShares tests that instances together may admit at least what a quota does,
// and that shares and wider quotas are valid.
func TestShares(t *testing.T) {
	race.Skip(t)
	random := rand.New(rand.NewPCG(5, 1))
	for _, a := range Algorithms() {
		for range 2_000 {
			q := someQuota(t, random, a)
			require.Equal(t, q, q.Share(1))
			n := 1 + random.Int64N(50)
			part := q.Share(n)
			require.NoError(t, part.Validate(), "%+v of %d", q, n)
			require.GreaterOrEqual(t, n*part.Capacity(), q.Capacity(), "%+v of %d", q, n)
			require.LessOrEqual(t, part.Capacity(), q.Capacity())
			for _, times := range []int64{1, 2} {
				wide := q.Wider(n, times)
				require.NoError(t, wide.Validate(), "%+v of %d, %d times", q, n, times)
				require.GreaterOrEqual(t, wide.Capacity(), part.Capacity())
			}
			require.Positive(t, q.Span())
		}
	}
}
