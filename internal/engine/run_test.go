package engine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestShare checks that the share of keys is about the percentage, and that it stays the
// same: a change would enforce rules for other keys.
func TestShare(t *testing.T) {
	assert.Equal(t, []int{65, 91, 74, 90}, []int{share("", "", ""), share("POST /update", "per-ip-2s", "203.0.113.9"),
		share("p", "ab", "c"), share("p", "a", "bc")})
	const keys = 20_000
	var below [101]int
	for i := range keys {
		for n := share("policy", "rule", fmt.Sprintf("user-%d", i)) + 1; n <= 100; n++ {
			below[n]++
		}
	}
	assert.Equal(t, keys, below[100])
	for percent, n := range below {
		assert.InDelta(t, percent*keys/100, n, keys/100, percent)
	}
	same := 0 // of two rules, other keys
	for i := range keys {
		key := fmt.Sprintf("user-%d", i)
		if share("policy", "rule", key) < 10 && share("policy", "other", key) < 10 {
			same++
		}
	}
	assert.InDelta(t, keys/100, same, keys/200)
}
