package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// leases tests units that are held for a time: many at once, and what random schedules
// leave out.
func leases() []namedTest {
	var tests []namedTest
	for _, n := range []int64{100, core.MaxLeases} {
		tests = append(tests, namedTest{fmt.Sprint(n, " units"), func(t *testing.T, h Harness) { manyLeases(t, h, n) }})
	}
	// Leases end with a shorter Window, also if it is made longer again.
	long := core.Quota{Algorithm: core.Concurrency, Limit: 3, Window: 10 * ms}
	brief := core.Quota{Algorithm: core.Concurrency, Limit: 3, Window: 2 * ms}
	shortened := script{"of a shortened life", []row{
		at(0, met{lease(long, 1, 1), fits(2, 10*ms, 10*ms)}),
		at(5*ms, met{lease(long, 1, 2), fits(1, 5*ms, 10*ms)}),
		at(9*ms, met{lease(brief, 0, 0), fits(1, 1*ms, 6*ms)}),
		at(10*ms, met{lease(brief, 1, 3), fits(1, 2*ms, 5*ms)}),
		at(12*ms, met{lease(long, 0, 0), fits(2, 3*ms, 3*ms)}),
		at(1*ms, met{lease(brief, 0, 0), fits(1, 10*ms, 10*ms)}), // the clock steps back
	}}
	return append(append(tests, scripts([]script{shortened})...),
		namedTest{"several of a key", leasesOfAKey},
		namedTest{"wide ids", wideIDs},
	)
}

func lease(quota core.Quota, cost int64, id uint64) core.Charge {
	return core.Charge{Rule: "r", Key: "k", Quota: quota, Cost: cost, ID: id}
}

// renew renews leases in one call, of which some must be held.
func renew(t *testing.T, h Harness, want []bool, charges ...core.Charge) {
	t.Helper()
	held, err := Renew(t.Context(), h.Store, "policy", charges)
	assert.NoError(t, err)
	assert.Equal(t, want, held, "renewed %+v", charges)
}

func release(t *testing.T, h Harness, charges ...core.Charge) {
	t.Helper()
	assert.NoError(t, Release(t.Context(), h.Store, "policy", charges), "released %+v", charges)
}

// manyLeases holds all units in a hundred leases, and releases some in the middle.
func manyLeases(t *testing.T, h Harness, n int64) {
	quota := core.Quota{Algorithm: core.Concurrency, Limit: n, Window: sec}
	const ids = 100
	look := func(at, want int64) {
		t.Helper()
		h.SetTime(starts[0] + at)
		require.Equal(t, want, remaining(t, h, lease(quota, 0, 0)), "remaining after %d µs", at)
	}
	for id := range int64(ids) {
		h.SetTime(starts[0] + id)
		require.True(t, take(t, h, "policy", lease(quota, n/ids, uint64(id)+1)).Allowed, "lease %d", id)
	}
	require.False(t, take(t, h, "policy", lease(quota, 1, 999)).Allowed, "one more than all")
	h.SetTime(starts[0] + ids)
	for id := int64(10); id < 20; id++ {
		release(t, h, lease(quota, 1, uint64(id)+1))
	}
	renew(t, h, []bool{true}, lease(quota, 1, 1))
	look(ids, n/10)
	look(sec+9, n/10*2-n/ids) // the ten before those in the middle have ended, but for the renewed
	look(sec+ids-1, n-n/ids)  // all but the renewed
	h.SetTime(starts[0] + sec + 50)
	renew(t, h, []bool{false}, lease(quota, 1, 51))
	look(sec+ids, n)
}

// leasesOfAKey renews and releases many leases of two keys in one call.
func leasesOfAKey(t *testing.T, h Harness) {
	quota := core.Quota{Algorithm: core.Concurrency, Limit: 100, Window: sec}
	of := func(key string, id uint64) core.Charge {
		c := lease(quota, 1, id)
		c.Key = key
		return c
	}
	look := func(at int64, key string, want int64) {
		t.Helper()
		h.SetTime(starts[0] + at)
		assert.Equal(t, want, quota.Limit-remaining(t, h, of(key, 0)), "leases of %s that are held after %d ms", key, at/ms)
	}
	h.SetTime(starts[0])
	for id := range uint64(64) {
		take(t, h, "policy", of("k", id+1))
		take(t, h, "policy", of("l", id+1))
	}
	var charges []core.Charge
	for id := range uint64(64) { // of k the second half, and as many that were never taken
		charges = append(charges, of("k", id+33), of("l", id+1))
	}
	held := make([]bool, len(charges))
	for i, c := range charges {
		held[i] = c.ID <= 64
	}
	h.SetTime(starts[0] + 500*ms)
	renew(t, h, slices.Repeat(held, 2), slices.Repeat(charges, 2)...)
	look(sec, "k", 32)
	look(sec, "l", 64)
	release(t, h, append(charges[:32], charges[:5]...)...)
	look(sec, "k", 16)
	look(sec, "l", 48)

	// A shorter window is that of the leases that it renews, and of no others.
	brief := of("k", 50)
	brief.Quota.Window = 100 * ms
	renew(t, h, []bool{true, true, true, true, false}, of("k", 49), brief, of("l", 17), of("k", 51), of("k", 33))
	look(sec+100*ms, "k", 15)
	look(sec+100*ms, "l", 48)
}

// wideIDs holds leases with ids that differ only in bits that a double loses, or
// that look like the bytes between them.
func wideIDs(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Algorithm: core.Concurrency, Limit: 100, Window: sec}
	ids := []uint64{1<<63 + 1, 1 << 63, 1<<63 + 2, 1<<64 - 1, 1, 1 << 8, 1 << 16, 1 << 24, 1 << 32, 1 << 40, 1 << 48, 1 << 56, 257}
	for _, id := range ids {
		take(t, h, "policy", lease(quota, 1, id))
	}
	for i, id := range ids {
		release(t, h, lease(quota, 1, id))
		for j, other := range ids {
			renew(t, h, []bool{j > i}, lease(quota, 1, other))
		}
	}
}

func invalidLeases(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: sec}
	good := lease(quota, 1, 7)
	take(t, h, "policy", good)
	window := core.Charge{Rule: "w", Key: "k", Quota: core.Quota{Limit: 2, Window: sec}, Cost: 1, ID: 7}
	tooMany := slices.Repeat([]core.Charge{good}, core.MaxLeaseCharges+1)
	for _, charges := range [][]core.Charge{nil, {good, window}, {lease(quota, 1, 0)}, tooMany} {
		held, err := Renew(t.Context(), h.Store, "policy", charges)
		assert.ErrorIs(t, err, core.ErrCharges, "renewing %d", len(charges))
		assert.Nil(t, held)
		assert.ErrorIs(t, Release(t.Context(), h.Store, "policy", charges), core.ErrCharges, "releasing %d", len(charges))
	}
	renew(t, h, []bool{true}, good)
}
