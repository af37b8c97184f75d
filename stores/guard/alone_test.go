package guard

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// watched returns a charge that decides alone.
func watched(limit int64, on core.OnError) core.Charge {
	c := charge("watched", limit, on)
	c.Alone = true
	return c
}

func leftOf(t *testing.T, s core.Store, c core.Charge) int64 {
	t.Helper()
	c.Cost = 0
	d, err := core.Take(t.Context(), s, of("p", []core.Charge{c}))
	require.NoError(t, err)
	return d.Outcomes()[0].Remaining
}

// TestAloneInAnOutage holds that a charge that decides alone never refuses in an
// outage, and has the outcomes of its OnError. Local goes on from what the store had
// taken, also of refused requests.
func TestAloneInAnOutage(t *testing.T) {
	for _, instances := range []int{1, 2} {
		now := new(atomic.Int64)
		now.Store(sec)
		s, f := guarded(instances, now)
		take := func(on core.OnError) core.Decision {
			d, err := core.Take(t.Context(), s, of("p", []core.Charge{charge("first", 2, core.Local), watched(8, on)}))
			require.NoError(t, err)
			return d
		}
		for i := range 3 {
			d := take(core.Local)
			require.Equal(t, i < 2, d.Allowed)
			require.True(t, d.Took(1))
			require.EqualValues(t, 7-i, d.Outcomes()[1].Remaining)
		}
		require.EqualValues(t, 5, leftOf(t, f.Store, watched(8, core.Local)), "each counts once")
		f.fail(errDown)
		now.Add(12 * sec) // the first rule has room again
		require.True(t, take(core.Refuse).Allowed)
		assert.False(t, func() bool { d := take(core.Refuse); return d.Took(1) }())
		now.Add(12 * sec)
		d := take(core.Allow)
		assert.True(t, d.Took(1))
		assert.EqualValues(t, 8, d.Outcomes()[1].Remaining)
		now.Add(12 * sec)
		for i := range 10 {
			d := take(core.Local)
			share := int64(8 / instances)
			assert.Equal(t, int64(i) < int64(2/instances), d.Allowed)
			assert.Equal(t, int64(i) < share, d.Took(1), "%d of %d", i, share)
			assert.Equal(t, max(0, share-int64(i)-1), d.Outcomes()[1].Remaining)
		}
	}
	now := new(atomic.Int64)
	now.Store(sec)
	s, f := guarded(1, now)
	for range 3 {
		_, err := core.Take(t.Context(), s, of("p", []core.Charge{charge("first", 2, core.Local), watched(8, core.Local)}))
		require.NoError(t, err)
	}
	f.fail(errDown)
	d, err := core.Take(t.Context(), s, of("p", []core.Charge{charge("first", 2, core.Local), watched(8, core.Local)}))
	require.NoError(t, err)
	assert.Equal(t, core.ModeLocal, d.Mode)
	assert.EqualValues(t, 4, d.Outcomes()[1].Remaining, "three were counted before the outage")
}

// TestAloneAfterAnOutage holds that the store decides a charge that decides alone, and
// counts it once, while the memory refuses the request.
func TestAloneAfterAnOutage(t *testing.T) {
	for _, instances := range []int{1, 2} {
		now := new(atomic.Int64)
		now.Store(sec)
		s, f := guarded(instances, now)
		charges := []core.Charge{charge("first", 2, core.Local), watched(8, core.Local)}
		f.fail(errDown)
		for range 3 {
			_, err := core.Take(t.Context(), s, of("p", charges))
			require.NoError(t, err)
		}
		f.fail(nil)
		for i := range 4 {
			d, err := core.Take(t.Context(), s, of("p", charges))
			require.NoError(t, err)
			require.False(t, d.Allowed)
			require.True(t, d.Took(1))
			require.EqualValues(t, 7-i, d.Outcomes()[1].Remaining, "what the store has left")
			require.EqualValues(t, 7-i, leftOf(t, f.Store, charges[1]))
		}
	}
}

// TestAloneWithAShare holds that a request that is more than the share of an instance
// counts once in memory.
func TestAloneWithAShare(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(sec)
	s, f := guarded(2, now)
	charges := []core.Charge{charge("first", 8, core.Local), watched(100, core.Local)}
	for range 8 {
		d, err := core.Take(t.Context(), s, of("p", charges))
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	own := charges[1]
	own.Quota = own.Quota.Share(2)
	assert.EqualValues(t, 92, leftOf(t, f.Store, charges[1]))
	assert.EqualValues(t, 42, leftOf(t, s.own, own))
}

// TestAloneInOverflow has keys share overflow quotas. Each request counts once where
// the memory refuses it, and where the memory gets room in between, so that the store
// is asked twice.
func TestAloneInOverflow(t *testing.T) {
	for _, room := range []bool{false, true} {
		s, f := full(t, new(atomic.Int64))
		q := core.Quota{Limit: 4, Window: hour}
		c := core.Charge{Rule: "watched", Quota: core.Quota{Limit: 100, Window: hour}, Cost: 1, Alone: true}
		calls := 0
		f.first = func() {
			if calls++; calls == 2 && room { // the look was the first
				for i := range 12 * 256 {
					require.NoError(t, s.own.Reset(t.Context(), "p", "r", fmt.Sprint("flood ", i)))
				}
			}
		}
		for i := range 6 {
			d, err := core.Take(context.Background(), s, of("p", []core.Charge{{Rule: "r", Key: "new", Quota: q, Cost: 1}, c}))
			require.NoError(t, err)
			require.Equal(t, i < 4, d.Allowed)
			require.True(t, d.Took(1))
			require.EqualValues(t, 99-i, d.Outcomes()[1].Remaining)
		}
		require.Greater(t, calls, 6)
		assert.EqualValues(t, 94, leftOf(t, f.Store, c))
	}
}
