package core

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestBurstRaisedAgain lowers and raises the limit of a bucket in turn, as often as a
// client could wish: it admits no more than under the larger limit alone.
func TestBurstRaisedAgain(t *testing.T) {
	const window, step = 1_000_000, 5_000
	state := NewState(TokenBucket)
	admitted, now := int64(0), int64(1_000_000_000_000)
	for i := range int64(2000) {
		now += step
		q := Quota{Algorithm: TokenBucket, Limit: 1000, Window: window, Burst: 1000}
		if i/10%2 == 1 {
			q.Limit, q.Burst = 100, 100
		}
		for Decide(now, []Charge{{Rule: "r", Quota: q, Cost: 1}}, []State{state}).Allowed {
			admitted++
		}
	}
	assert.LessOrEqual(t, admitted, 1000+2000*int64(step)*1000/window)
	assert.Greater(t, admitted, int64(5000))
	t.Log(admitted)
}
