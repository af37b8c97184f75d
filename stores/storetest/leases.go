package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// leases tests units that are held for a time: many at once, and what random schedules
// leave out.
func leases() []namedTest {
	var tests []namedTest
	for _, n := range []int64{100, core.MaxLeases} {
		tests = append(tests, namedTest{fmt.Sprint(n, " units"), func(t *testing.T, h Harness) { manyLeases(t, h, n) }})
	}
	return append(tests,
		namedTest{"of a shortened life", shorterLives},
		namedTest{"several of a key", leasesOfAKey},
		namedTest{"wide ids", wideIDs},
		namedTest{"invalid", invalidLeases},
	)
}

func lease(quota core.Quota, cost int64, id uint64) core.Charge {
	return core.Charge{Rule: "r", Key: "k", Quota: quota, Cost: cost, ID: id}
}

// renew renews leases in one call, of which some must be held.
func renew(t *testing.T, h Harness, want []bool, charges ...core.Charge) {
	t.Helper()
	held, err := Renew(t.Context(), h.Store, "policy", charges)
	if err != nil || !slices.Equal(held, want) {
		t.Errorf("renewed %+v: held %v, %v; want %v", charges, held, err, want)
	}
}

func release(t *testing.T, h Harness, charges ...core.Charge) {
	t.Helper()
	if err := Release(t.Context(), h.Store, "policy", charges); err != nil {
		t.Errorf("released %+v: %v", charges, err)
	}
}

// shorterLives looks at leases by a quota of a shorter Window: they end with it, also if
// it is made longer again.
func shorterLives(t *testing.T, h Harness) {
	long := core.Quota{Algorithm: core.Concurrency, Limit: 3, Window: 10 * ms}
	brief := long
	brief.Window = 2 * ms
	for _, step := range []struct {
		at        int64
		lease     core.Charge
		remaining int64
		more      int64
	}{
		{0, lease(long, 1, 1), 2, 10 * ms},
		{5 * ms, lease(long, 1, 2), 1, 5 * ms},
		{9 * ms, lease(brief, 0, 0), 1, 1 * ms},
		{10 * ms, lease(long, 0, 0), 2, 1 * ms},
		{11*ms - 1, lease(long, 0, 0), 2, 1},
	} {
		h.SetTime(starts[0] + step.at)
		if o := first(take(t, h, "policy", step.lease)); o.Remaining != step.remaining || o.MoreAfter != step.more {
			t.Errorf("%d µs: %s, want %d remaining and %d µs", step.at, outcome(o), step.remaining, step.more)
		}
	}
}

// manyLeases holds all units in a hundred leases, and releases some in the middle.
func manyLeases(t *testing.T, h Harness, n int64) {
	quota := core.Quota{Algorithm: core.Concurrency, Limit: n, Window: sec}
	const ids = 100
	look := func(at, want int64) {
		t.Helper()
		h.SetTime(starts[0] + at)
		d := take(t, h, "policy", lease(quota, 0, 0))
		if got := d.Outcomes()[0].Remaining; got != want {
			t.Fatalf("%d remain after %d, want %d", got, at, want)
		}
	}
	for id := range int64(ids) {
		h.SetTime(starts[0] + id)
		if !take(t, h, "policy", lease(quota, n/ids, uint64(id)+1)).Allowed {
			t.Fatalf("lease %d is refused", id)
		}
	}
	if take(t, h, "policy", lease(quota, 1, 999)).Allowed {
		t.Fatal("one more than all is admitted")
	}
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
		c := of(key, 0)
		c.Cost = 0
		d := take(t, h, "policy", c)
		if got := quota.Limit - d.Outcomes()[0].Remaining; got != want {
			t.Errorf("%d leases of %s are held after %d ms, want %d", got, key, at/ms, want)
		}
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
	renew(t, h, append(held, held...), append(charges, charges...)...)
	look(sec, "k", 32)
	look(sec, "l", 64)
	release(t, h, append(charges[:32], charges[:5]...)...)
	look(sec, "k", 16)
	look(sec, "l", 48)

	// A shorter window ends all leases of its key with it but those renewed later.
	brief := of("k", 50)
	brief.Quota.Window = 100 * ms
	renew(t, h, []bool{true, true, true, true, false}, of("k", 49), brief, of("l", 17), of("k", 51), of("k", 33))
	look(sec+100*ms, "k", 1)
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
	undecided(t, h, []core.Charge{lease(quota, 1, 0)}, lease(quota, 0, 0))
	good := lease(quota, 1, 7)
	take(t, h, "policy", good)
	window := core.Charge{Rule: "w", Key: "k", Quota: core.Quota{Limit: 2, Window: sec}, Cost: 1, ID: 7}
	tooMany := slices.Repeat([]core.Charge{good}, core.MaxLeaseCharges+1)
	for _, charges := range [][]core.Charge{nil, {good, window}, {lease(quota, 1, 0)}, tooMany} {
		if held, err := Renew(t.Context(), h.Store, "policy", charges); !errors.Is(err, core.ErrCharges) || held != nil {
			t.Errorf("renewing %d: %v, %v", len(charges), held, err)
		}
		if err := Release(t.Context(), h.Store, "policy", charges); !errors.Is(err, core.ErrCharges) {
			t.Errorf("releasing %d: %v", len(charges), err)
		}
	}
	renew(t, h, []bool{true}, good)
}
