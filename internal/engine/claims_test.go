package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

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
