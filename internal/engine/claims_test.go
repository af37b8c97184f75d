package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// TestClaims has two of what is behind a set claim its run at once. The one that finds it in another
// state must not keep the other from it, nor let anything claim it again that was closed.
func TestClaims(t *testing.T) {
	p := planOf(Rule{Charge: core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1e9, Window: 3_600_000_000}}})
	ctx := context.Background()
	for range 3000 {
		var d Decision
		var h Hold
		var others sync.WaitGroup
		var end atomic.Bool
		claim := func(f func()) (stop func()) {
			end.Store(false)
			for range 2 {
				others.Go(func() {
					for !end.Load() {
						f()
					}
				})
			}
			return func() { end.Store(true); others.Wait() }
		}
		again := func() { _, _ = h.TakeAgain(ctx) }
		r := h.Begin(p)
		r.Charges[0].Cost = 1
		require.NoError(t, r.Decide(ctx, ctx, &d))
		h.Set()
		stop := claim(again) // of parts that are served, though nothing was given back
		list := h.Unused(&d, nil)
		stop()
		require.Len(t, list, 1, "a part that is refused gives back")
		p.engine.GiveBack(ctx, list)
		require.True(t, list[0].Amend(&d))

		stop = claim(func() { h.Keep() }) // of parts that were served before
		given, err := h.TakeAgain(ctx)
		stop()
		require.NoError(t, err)
		require.True(t, given, "a part that is served takes again")

		h.End()
		r = h.Begin(p)
		r.Charges[0].Cost = 1
		require.NoError(t, r.Decide(ctx, ctx, &d))
		h.Set()
		stop = claim(again)
		h.Close()
		stop()
		require.Empty(t, h.Unused(&d, nil), "the request is served")
		h.End()
	}
}

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
