package guard

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// full returns a guard whose memory is full.
func full(t *testing.T, now *atomic.Int64) (*Store, *frail) {
	now.Store(1000 * hour)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{Log: nowhere}, memstore.New(&memstore.Options{MaxKeys: 256, Now: now.Load}), now.Load)
	flood(t, s, core.Quota{Limit: 4, Window: 2 * hour})
	return s, f
}

// overflowing returns a guard whose memory is full, and whose breaker is open
// until the clock is firstWait later. The first key of the flood has room for certain.
func overflowing(t *testing.T, now *atomic.Int64) (*Store, *frail) {
	s, f := full(t, now)
	f.fail(errDown)
	for range failuresToOpen {
		once(t, s, "flood 0", core.Quota{Limit: 4, Window: 2 * hour})
	}
	f.fail(nil)
	require.NotZero(t, s.breaker.until.Load())
	return s, f
}

// TestProbeLeavesOnce checks that a probe that asks the store twice is one probe:
// the breaker closes after the second answer, and not before.
func TestProbeLeavesOnce(t *testing.T) {
	now := new(atomic.Int64)
	s, f := overflowing(t, now)
	now.Add(firstWait)
	calls := 0
	f.first = func() {
		calls++
		assert.EqualValues(t, probing, s.breaker.until.Load(), "request %d", calls)
	}
	d := once(t, s, "new", core.Quota{Limit: 4, Window: hour})
	assert.True(t, d.Allowed)
	assert.Equal(t, core.ModeOverflow, d.Mode)
	assert.Equal(t, 2, calls)
	assert.EqualValues(t, closed, s.breaker.until.Load())
}

// TestProbeFailsHalfway checks that a probe has failed if its second request fails: the next
// probe waits twice as long.
func TestProbeFailsHalfway(t *testing.T) {
	now := new(atomic.Int64)
	s, f := overflowing(t, now)
	now.Add(firstWait)
	calls := 0
	f.first = func() {
		if calls++; calls == 2 {
			f.fail(errDown)
		}
	}
	d := once(t, s, "new", core.Quota{Limit: 4, Window: hour})
	assert.Equal(t, core.ModeLocal, d.Mode)
	assert.Equal(t, 2, calls)
	assert.EqualValues(t, 2*firstWait, s.breaker.probeIn(now.Load()))
}

// TestPanicLeaves checks that a store that panics in a probe does not keep the
// breaker open forever.
func TestPanicLeaves(t *testing.T) {
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	c := []core.Charge{charge("r", 10, core.Local)}
	for range failuresToOpen {
		storetest.MustTake(t, s, c...)
	}
	now.Add(firstWait)
	f.first = func() { panic("a bug") }
	assert.Panics(t, func() { _, _ = core.Take(t.Context(), s, storetest.Of("p", c...)) })
	f.first = nil
	f.fail(nil)
	d := storetest.MustTake(t, s, c...)
	assert.Equal(t, core.ModeExact, d.Mode)
}

// TestResetUsesTheBreaker checks that a Reset that fails counts as a failed call,
// and that a Reset does not wait for a store that is known to be unavailable.
func TestResetUsesTheBreaker(t *testing.T) {
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	for i := range 2 * failuresToOpen {
		c := charge("r", 1, core.Local)
		d := storetest.MustTake(t, s.own, c)
		require.True(t, d.Allowed, "the memory is reset all the same")
		require.ErrorIs(t, s.Reset(t.Context(), []core.Charge{{Policy: "p", Rule: "r", Key: "k"}}), core.ErrUnavailable)
		require.EqualValues(t, min(i+1, failuresToOpen), f.resets.Load())
	}
	f.fail(nil)
	now.Add(firstWait)
	require.NoError(t, s.Reset(t.Context(), []core.Charge{{Policy: "p", Rule: "r", Key: "k"}}))
	assert.EqualValues(t, closed, s.breaker.until.Load(), "it was the probe")
}

// TestRoomAfterTheLook has a unit expire in memory between the two answers to one
// request: the look, which finds no room, and the take for the refusal. If the
// store then refuses, the request must not count in memory. If the store admits,
// its units must be returnable.
func TestRoomAfterTheLook(t *testing.T) {
	for _, admits := range []bool{false, true} {
		t.Run(fmt.Sprintf("the store admits: %v", admits), func(t *testing.T) {
			now := new(atomic.Int64)
			now.Store(sec)
			ticks := new(atomic.Int64) // how far each reading moves the clock of the memory
			own := memstore.New(&memstore.Options{Now: func() int64 { return now.Add(ticks.Load()) }})
			f := &frail{Store: at(now)}
			s := newStore(f, &Options{Log: nowhere}, own, now.Load)
			c := charge("r", 1, core.Local)
			left := func() int64 {
				look := c
				look.Cost = 0
				d := storetest.MustTake(t, own, look)
				return d.Outcomes()[0].Remaining
			}
			take := func() core.Decision {
				return storetest.MustTake(t, s, c)
			}
			f.fail(errDown)
			require.True(t, take().Allowed)
			f.fail(nil)
			if !admits { // another process has taken it
				storetest.MustTake(t, f.Store, c)
			}

			now.Store(11*sec - 2)
			ticks.Store(1)
			if !admits {
				f.first = func() { now.Store(11*sec - 1) } // the store's unit has not left
			}
			d := take()
			ticks.Store(0)
			now.Store(11*sec + 100)
			require.Equal(t, admits, d.Allowed)
			if !admits {
				assert.EqualValues(t, 1, left())
				return
			}
			assert.Zero(t, left())
			given := must.Get(s.Return(t.Context(), []core.Return{d.Return(0, storetest.Of("p", c)[0])}))(t)
			assert.EqualValues(t, 1, given[0].Units)
			assert.EqualValues(t, 1, left())
		})
	}
}
