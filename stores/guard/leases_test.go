package guard

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/storetest"
)

func leased(id uint64) core.Charge {
	return core.Charge{Rule: "r", ID: id, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 10 * sec}, Cost: 1}
}

// TestLeasesAcrossFailure holds leases that were taken with and without the store while
// it fails and loses its data: two at a time, however long they are held.
func TestLeasesAcrossFailure(t *testing.T) {
	f := newFleet(1, nil)
	s := f.guards[0]
	take := func(id uint64, want bool) {
		t.Helper()
		d := storetest.MustTake(t, s, leased(id))
		require.Equal(t, want, d.Allowed)
	}
	renew := func(id uint64, want bool) {
		t.Helper()
		held := must.Get(s.Renew(t.Context(), storetest.Of("p", leased(id))))(t)
		require.Equal(t, []bool{want}, held)
	}
	take(1, true) // with the store
	f.cut[0].fail(errDown)
	take(2, true) // without it
	take(3, false)
	renew(1, true)
	renew(2, true)
	renew(3, false)
	f.lose()
	f.cut[0].fail(nil)
	for range 20 { // a minute, which is six windows
		f.now.Add(3 * sec)
		renew(1, true)
		renew(2, true)
		take(3, false)
	}
	require.NoError(t, s.Release(t.Context(), storetest.Of("p", leased(1))))
	renew(1, false)
	take(3, true)
	take(4, false)
	require.NoError(t, s.Release(t.Context(), storetest.Of("p", leased(2))))
	take(4, true)

	// When the store knows all leases, the memory does not decide any more.
	f.now.Add(9 * sec)
	renew(3, true)
	renew(4, true)
	f.now.Add(9 * sec)
	d := storetest.MustTake(t, s, leased(5))
	assert.Equal(t, core.ModeExact, d.Mode)
	assert.False(t, d.Allowed)

	// Then the store is believed when it says that a lease has ended.
	f.lose()
	renew(3, false)
	d = storetest.MustTake(t, s.own, leased(5))
	assert.True(t, d.Allowed, "nor does the memory hold it")
}

// TestLeasesOfOneOfMany checks leases that other instances do not count. They are renewed in
// memory, and Renew returns an error, since others may admit requests beside them.
func TestLeasesOfOneOfMany(t *testing.T) {
	f := newFleet(2, nil)
	s := f.guards[0]
	take := func(id uint64) {
		t.Helper()
		d := storetest.MustTake(t, s, leased(id))
		require.True(t, d.Allowed)
	}
	renew := func() ([]bool, error) { return s.Renew(t.Context(), storetest.Of("p", leased(1))) }
	heldAlone := func() {
		t.Helper()
		held, err := renew()
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.ErrorContains(t, err, "held by this instance alone")
		require.Equal(t, []bool{false}, held)
	}
	take(1)
	f.cut[0].fail(errDown)
	f.now.Add(9 * sec)
	heldAlone()
	f.cut[0].fail(nil)
	held := must.Get(renew())(t)
	require.Equal(t, []bool{true}, held, "the store has held it all the time")

	f.cut[0].fail(errDown)
	for range 6 {
		f.now.Add(3 * sec)
		heldAlone()
	}
	f.cut[0].fail(nil)
	heldAlone() // the store has said so
	d := storetest.MustTake(t, f.guards[1], leased(3))
	require.True(t, d.Allowed)
	f.now.Add(9 * sec)
	heldAlone()
	f.now.Add(11 * sec) // as long as this process stood still
	held = must.Get(renew())(t)
	require.Equal(t, []bool{false}, held)
}

// TestReleaseOutOfReach checks that a release while the store is unavailable is no error.
func TestReleaseOutOfReach(t *testing.T) {
	s, f, _ := guarded(1, 0)
	f.fail(errDown)
	for range 20 {
		require.NoError(t, s.Release(t.Context(), storetest.Of("p", leased(1))))
	}
	assert.NotZero(t, s.breaker.until.Load(), "it counts as a failed call")
	assert.ErrorIs(t, s.Release(t.Context(), nil), core.ErrCharges)
}

// TestReturnWhereItWasTaken returns to the store what it admitted, and to the memory what the
// memory admitted.
func TestReturnWhereItWasTaken(t *testing.T) {
	s, f, _ := guarded(1, sec)
	c := core.Charge{Rule: "r", Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 3, Window: 10 * sec}, Cost: 1}
	take := func() core.Return {
		d := storetest.MustTake(t, s, c)
		require.True(t, d.Allowed)
		return core.Return{Charge: storetest.Of("p", c)[0], At: d.At, Mode: d.Mode, Tag: d.Tag}
	}
	left := func(s core.Store) int64 {
		look := c
		look.Cost = 0
		d := storetest.MustTake(t, s, look)
		return d.Outcomes()[0].Remaining
	}
	exact := take()
	f.fail(errDown)
	local := take()
	require.Equal(t, core.ModeLocal, local.Mode)
	f.fail(nil)
	given := must.Get(s.Return(t.Context(), []core.Return{local}))(t)
	assert.EqualValues(t, 1, given[0].Units)
	assert.EqualValues(t, 2, left(f.Store), "it is not the store's to give")
	given = must.Get(s.Return(t.Context(), []core.Return{exact}))(t)
	assert.EqualValues(t, 1, given[0].Units)
	assert.EqualValues(t, 3, left(f.Store))
	assert.EqualValues(t, 3, left(s.own))

	take()
	require.NoError(t, s.Reset(t.Context(), []core.Charge{{Policy: "p", Rule: "r", Key: ""}}))
	assert.EqualValues(t, 3, left(f.Store))
	assert.EqualValues(t, 3, left(s.own))
}

// TestReturnOfCopies returns units by a store with another clock. The memory finds its copy
// all the same, so those units do not count when the store is unavailable.
func TestReturnOfCopies(t *testing.T) {
	for _, instances := range []int{1, 3} {
		now, other := new(atomic.Int64), new(atomic.Int64)
		now.Store(100 * sec)
		other.Store(5_000*sec + 17)
		f := &frail{Store: at(other)}
		s := newStore(f, &Options{Instances: instances, Log: nowhere}, at(now), now.Load)
		for _, q := range []core.Quota{
			{Limit: 6, Window: 60 * sec},
			{Algorithm: core.FixedWindow, Limit: 6, Window: 60 * sec},
			{Algorithm: core.SlidingCells, Limit: 6, Window: 60 * sec, Cells: 10},
			{Algorithm: core.SlidingCounter, Limit: 6, Window: 60 * sec},
			{Algorithm: core.TokenBucket, Limit: 6, Window: 60 * sec, Burst: 6},
			{Algorithm: core.LeakyBucket, Limit: 6, Window: 60 * sec, Burst: 6},
		} {
			c := core.Charge{Rule: "r", Key: q.Algorithm.String(), Quota: q, Cost: 2}
			takes := 3
			if instances > 1 && q.Refills() { // the others have taken the rest
				takes = 1
				others := c
				others.Cost = 4
				storetest.MustTake(t, f.Store, others)
			}
			var list []core.Return
			for range takes {
				d := storetest.MustTake(t, s, c)
				require.True(t, d.Allowed)
				require.Equal(t, core.ModeExact, d.Mode)
				list = append(list, d.Return(0, storetest.Of("p", c)[0]))
				now.Add(1000)
				other.Add(1000)
			}
			for i := range list {
				must.Get(s.Return(t.Context(), list[i:i+1]))(t)
			}
			now.Add(10_000) // a part of a unit of a bucket refills
			other.Add(10_000)
			look := c
			look.Cost, look.Quota = 0, q.Share(s.instances)
			d := storetest.MustTake(t, s.own, look)
			if instances == 1 || !q.Refills() {
				assert.Equal(t, look.Quota.Capacity(), d.Outcomes()[0].Remaining, "%v of %d", q.Algorithm, instances)
			} else {
				assert.Zero(t, d.Outcomes()[0].Remaining)
			}
		}
	}
}

// TestUndo checks that units go back to the store if it admits and the memory refuses.
func TestUndo(t *testing.T) {
	s, f, _ := guarded(1, 0)
	charges := []core.Charge{charge("a", 1, core.Local), leased(1)}
	slow := &pause{f.Store, make(chan struct{}), make(chan struct{})}
	f.Store = slow
	first := make(chan core.Decision)
	go func() {
		d, err := core.Take(t.Context(), s, storetest.Of("p", charges...))
		assert.NoError(t, err)
		first <- d
	}()
	<-slow.decided
	f.fail(errDown)
	d := storetest.MustTake(t, s, charges[:1]...)
	require.True(t, d.Allowed)
	f.fail(nil)
	close(slow.answer)
	assert.False(t, (<-first).Allowed)
	for i := range charges {
		charges[i].Cost = 0
	}
	for _, store := range []core.Store{slow.Store, s.own} {
		d := storetest.MustTake(t, store, charges...)
		assert.EqualValues(t, 2, d.Outcomes()[1].Remaining, "no lease is held")
	}
	d = storetest.MustTake(t, slow.Store, charges...)
	assert.EqualValues(t, 1, d.Outcomes()[0].Remaining)
}

// TestUndoWhenRoomIsTaken checks the same when another request takes the last
// unit of the memory while the store admits.
func TestUndoWhenRoomIsTaken(t *testing.T) {
	s, f, now := guarded(1, sec)
	charges := []core.Charge{charge("a", 1, core.Local), leased(1)}
	s.doubts.failed(now.Load())
	f.first = func() {
		d := storetest.MustTake(t, s.own, charges[:1]...)
		require.True(t, d.Allowed)
	}
	d := storetest.MustTake(t, s, charges...)
	assert.False(t, d.Allowed)
	assert.Equal(t, core.ModeLocal, d.Mode)
	assert.EqualValues(t, 10*sec, d.RetryAfter())
	looks := []core.Charge{charges[0], charges[1]}
	looks[0].Cost, looks[1].Cost = 0, 0
	left := storetest.MustTake(t, f.Store, looks...)
	assert.EqualValues(t, 1, left.Outcomes()[0].Remaining)
	assert.EqualValues(t, 2, left.Outcomes()[1].Remaining)
}

// partly is a store that fails to renew one lease.
type partly struct {
	core.Store
	failing uint64
}

func (p *partly) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	held, err := p.Store.Renew(ctx, charges)
	for i := range charges {
		if charges[i].ID == p.failing {
			held[i], err = false, core.ErrUnavailable
		}
	}
	return held, err
}

// TestRenewedInOverflowInPart renews leases in one call: one fails, and does not keep
// another in an overflow quota from being renewed.
func TestRenewedInOverflowInPart(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(1000 * hour)
	store := at(now)
	s := newStore(&partly{store, 3}, &Options{Log: nowhere}, at(now), now.Load)
	s.overflow.advance(now.Load() + hour)
	leases := []core.Charge{leased(1), leased(2), leased(3)}
	for i := range leases {
		leases[i].Key = fmt.Sprint("k", i)
	}
	for _, c := range []core.Charge{leases[0], shared(leases[1]), leases[2]} {
		d := storetest.MustTake(t, store, c)
		require.True(t, d.Allowed)
	}
	held, err := s.renew(t.Context(), storetest.Of("p", leases...))
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.Equal(t, []bool{true, true, false}, held)
}
