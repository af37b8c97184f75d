package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

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
	for id := int64(10); id < 20; id++ {
		releases(ids, quota, uint64(id)+1)(t, h, "release", "policy", starts[0])
	}
	renews(ids, quota, 1, true)(t, h, "renew", "policy", starts[0])
	look(ids, n/10)
	look(sec+9, n/10*2-n/ids) // the ten before those in the middle have ended, but for the renewed
	look(sec+ids-1, n-n/ids)  // all but the renewed
	renews(sec+50, quota, 51, false)(t, h, "renew", "policy", starts[0])
	look(sec+ids, n)
}

// besideAnother tests that a lease is taken with the other rules of a request,
// or not at all.
func besideAnother(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Algorithm: core.Concurrency, Limit: 5, Window: sec}
	window := core.Charge{Rule: "w", Key: "k", Quota: core.Quota{Limit: 2, Window: 10 * sec}, Cost: 1}
	for id := range uint64(4) {
		d := take(t, h, "policy", lease(quota, 1, id+1), window)
		if want := id < 2; d.Allowed != want {
			t.Errorf("request %d: allowed is %v", id, d.Allowed)
		}
	}
	held, err := Renew(t.Context(), h.Store, "policy", []core.Charge{lease(quota, 1, 3)})
	if err != nil || held[0] {
		t.Errorf("a refused request holds a lease: %v, %v", held, err)
	}
	d := take(t, h, "policy", lease(quota, 0, 0))
	if got := d.Outcomes()[0].Remaining; got != 3 {
		t.Errorf("%d remain, want 3", got)
	}
}

// severalLeases renews and releases leases of several rules in one call, each for
// itself. The leases of other policies, rules and keys must not change.
func severalLeases(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: sec}
	brief := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: ms}
	one := func(rule, key string, q core.Quota) core.Charge {
		return core.Charge{Rule: rule, Key: key, Quota: q, Cost: 1, ID: 7}
	}
	mine := []core.Charge{one("a", "k", quota), one("b", "k", brief), one("c", "", quota)}
	take(t, h, "policy", mine...)
	others := [][]core.Charge{{one("a", "other", quota)}, {one("d", "k", quota)}}
	for _, charges := range others {
		take(t, h, "policy", charges...)
	}
	take(t, h, "another", mine[0])

	h.SetTime(starts[0] + ms)
	held, err := Renew(t.Context(), h.Store, "policy", append(mine, one("never", "k", quota)))
	if want := []bool{true, false, true, false}; err != nil || !slices.Equal(held, want) {
		t.Errorf("held %v, %v; want %v", held, err, want)
	}
	if err := Release(t.Context(), h.Store, "policy", mine); err != nil {
		t.Error(err)
	}
	held, err = Renew(t.Context(), h.Store, "policy", mine)
	if want := []bool{false, false, false}; err != nil || !slices.Equal(held, want) {
		t.Errorf("after the release: held %v, %v", held, err)
	}
	for _, charges := range others {
		if held, err := Renew(t.Context(), h.Store, "policy", charges); err != nil || !held[0] {
			t.Errorf("%+v: held %v, %v", charges, held, err)
		}
	}
	if held, err := Renew(t.Context(), h.Store, "another", mine[:1]); err != nil || !held[0] {
		t.Errorf("of the other policy: held %v, %v", held, err)
	}
}

// leasesOfAKey renews and releases many leases of two keys in one call.
func leasesOfAKey(t *testing.T, h Harness) {
	quota := core.Quota{Algorithm: core.Concurrency, Limit: 100, Window: sec}
	of := func(key string, id uint64) core.Charge {
		c := lease(quota, 1, id)
		c.Key = key
		return c
	}
	renew := func(at int64, charges ...core.Charge) []bool {
		t.Helper()
		h.SetTime(starts[0] + at)
		held, err := Renew(t.Context(), h.Store, "policy", charges)
		if err != nil || len(held) != len(charges) {
			t.Fatalf("renewing %d after %d ms: %d, %v", len(charges), at/ms, len(held), err)
		}
		return held
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
	for i, held := range renew(500*ms, append(charges, charges...)...) {
		if c := charges[i%len(charges)]; held != (c.ID <= 64) {
			t.Errorf("lease %d of %s: held is %v", c.ID, c.Key, held)
		}
	}
	look(sec, "k", 32)
	look(sec, "l", 64)
	if err := Release(t.Context(), h.Store, "policy", append(charges[:32], charges[:5]...)); err != nil {
		t.Fatal(err)
	}
	look(sec, "k", 16)
	look(sec, "l", 48)

	// A shorter window ends all leases of its key with it but those renewed later.
	brief := of("k", 50)
	brief.Quota.Window = 100 * ms
	if held := renew(sec, of("k", 49), brief, of("l", 17), of("k", 51), of("k", 33)); !slices.Equal(held, []bool{true, true, true, true, false}) {
		t.Errorf("held %v", held)
	}
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
		releases(0, quota, id)(t, h, "release", "policy", starts[0])
		for j, other := range ids {
			renews(0, quota, other, j > i)(t, h, fmt.Sprint("without ", id), "policy", starts[0])
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
	renews(0, quota, 7, true)(t, h, "after invalid calls", "policy", starts[0])
}
