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
	held, err := h.Store.Renew(t.Context(), "policy", []core.Charge{lease(quota, 1, 3)})
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
	held, err := h.Store.Renew(t.Context(), "policy", append(mine, one("never", "k", quota)))
	if want := []bool{true, false, true, false}; err != nil || !slices.Equal(held, want) {
		t.Errorf("held %v, %v; want %v", held, err, want)
	}
	if err := h.Store.Release(t.Context(), "policy", mine); err != nil {
		t.Error(err)
	}
	held, err = h.Store.Renew(t.Context(), "policy", mine)
	if want := []bool{false, false, false}; err != nil || !slices.Equal(held, want) {
		t.Errorf("after the release: held %v, %v", held, err)
	}
	for _, charges := range others {
		if held, err := h.Store.Renew(t.Context(), "policy", charges); err != nil || !held[0] {
			t.Errorf("%+v: held %v, %v", charges, held, err)
		}
	}
	if held, err := h.Store.Renew(t.Context(), "another", mine[:1]); err != nil || !held[0] {
		t.Errorf("of the other policy: held %v, %v", held, err)
	}
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
	for _, charges := range [][]core.Charge{nil, {good, window}, {good, good}, {lease(quota, 1, 0)}} {
		if held, err := h.Store.Renew(t.Context(), "policy", charges); !errors.Is(err, core.ErrCharges) || held != nil {
			t.Errorf("renewing %+v: %v, %v", charges, held, err)
		}
		if err := h.Store.Release(t.Context(), "policy", charges); !errors.Is(err, core.ErrCharges) {
			t.Errorf("releasing %+v: %v", charges, err)
		}
	}
	renews(0, quota, 7, true)(t, h, "after invalid calls", "policy", starts[0])
}
