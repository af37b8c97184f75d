package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// leases tests units that are held for a time.
func leases() []namedTest {
	two := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 10 * ms}
	three, one, brief := two, two, two
	three.Limit, one.Limit, brief.Window = 3, 1, 2*ms
	tests := []namedTest{
		{"end by themselves", leaseScript(
			holds(0, two, 1, fits(1, 10*ms, 10*ms)),
			holds(4*ms, two, 2, fits(0, 6*ms, 10*ms)),
			holds(10*ms-1, two, 3, short(0, 1, 4*ms+1)),
			holds(10*ms, two, 3, fits(0, 4*ms, 10*ms)),
			looks(20*ms-1, two, fits(1, 1, 1)),
			looks(20*ms, two, fits(2, 0, 0)),
		)},
		{"renewed", leaseScript(
			holds(0, two, 1, fits(1, 10*ms, 10*ms)),
			holds(1*ms, two, 2, fits(0, 9*ms, 10*ms)),
			renews(9*ms, two, 1, true),
			looks(9*ms, two, fits(0, 2*ms, 10*ms)), // the other is the next to end
			renews(11*ms, two, 2, false),           // at its end
			looks(11*ms, two, fits(1, 8*ms, 8*ms)),
			renews(19*ms-1, two, 1, true),
			renews(19*ms-1, two, 1, true), // twice is as good as once
			looks(19*ms-1, two, fits(1, 10*ms, 10*ms)),
			renews(29*ms-1, two, 1, false), // a lease that has ended cannot be renewed
			looks(29*ms-1, two, fits(2, 0, 0)),
			renews(29*ms, two, 9, false), // it was never held
			looks(29*ms, two, fits(2, 0, 0)),
		)},
		{"released", leaseScript(
			holds(0, two, 1, fits(1, 10*ms, 10*ms)),
			holds(1*ms, two, 2, fits(0, 9*ms, 10*ms)),
			releases(2*ms, two, 9), // it was never held
			looks(2*ms, two, fits(0, 8*ms, 9*ms)),
			releases(2*ms, two, 1),
			looks(2*ms, two, fits(1, 9*ms, 9*ms)),
			releases(2*ms, two, 1), // twice ends no other lease
			looks(2*ms, two, fits(1, 9*ms, 9*ms)),
			renews(3*ms, two, 1, false),
			holds(3*ms, two, 3, fits(0, 8*ms, 10*ms)),
			releases(3*ms, two, 2), // the lease that ends first
			releases(3*ms, two, 3),
			looks(3*ms, two, fits(2, 0, 0)),
			holds(4*ms, two, 4, fits(1, 10*ms, 10*ms)),
			releases(14*ms, two, 4), // too late
			looks(14*ms, two, fits(2, 0, 0)),
		)},
		{"of several units", leaseScript(
			takes(0, three, 1, 2, fits(1, 10*ms, 10*ms)),
			takes(1*ms, three, 2, 2, short(1, 9*ms, 9*ms)),
			takes(1*ms, three, 2, 4, never(1, 9*ms)),
			takes(1*ms, three, 2, 1, fits(0, 9*ms, 10*ms)),
			takes(2*ms, three, 3, 2, short(0, 8*ms, 9*ms)),
			takes(2*ms, three, 3, 3, short(0, 9*ms, 9*ms)),
			renews(3*ms, three, 1, true),
			takes(3*ms, three, 3, 2, short(0, 10*ms, 10*ms)), // one unit is free earlier
			releases(3*ms, three, 1),
			takes(3*ms, three, 3, 2, fits(0, 8*ms, 10*ms)),
		)},
		{"taken twice", leaseScript(
			holds(0, three, 1, fits(2, 10*ms, 10*ms)),
			holds(5*ms, three, 1, fits(1, 5*ms, 10*ms)),
			holds(5*ms, three, 2, fits(0, 5*ms, 10*ms)),
			renews(6*ms, three, 1, true),
			looks(6*ms, three, fits(0, 9*ms, 10*ms)),
			releases(6*ms, three, 1),
			looks(6*ms, three, fits(2, 9*ms, 9*ms)),
			holds(7*ms, three, 3, fits(1, 8*ms, 10*ms)),
			holds(16*ms, three, 3, fits(1, 1*ms, 10*ms)),
			renews(17*ms, three, 3, true), // the half that has not ended
			looks(17*ms, three, fits(2, 10*ms, 10*ms)),
		)},
		{"looks and refusals leave no trace", leaseScript(
			holds(0, one, 1, fits(0, 10*ms, 10*ms)),
			holds(12*ms, two, 0, fits(2, 0, 0)),
			takes(12*ms, two, 2, 3, never(2, 0)),
			holds(12*ms, one, 3, fits(0, 10*ms, 10*ms)),
			holds(13*ms, one, 4, short(0, 9*ms, 9*ms)),
			renews(13*ms, one, 4, false),
			releases(13*ms, one, 4),
			looks(13*ms, one, fits(0, 9*ms, 9*ms)),
		)},
		{"a changed limit", leaseScript(
			holds(0, three, 1, fits(2, 10*ms, 10*ms)),
			holds(1*ms, three, 2, fits(1, 9*ms, 10*ms)),
			holds(2*ms, three, 3, fits(0, 8*ms, 10*ms)),
			holds(3*ms, one, 4, short(0, 9*ms, 9*ms)), // the last must end
			looks(3*ms, one, fits(0, 9*ms, 9*ms)),
			renews(3*ms, one, 1, true), // held is held
			releases(3*ms, one, 2),
			holds(3*ms, three, 4, fits(0, 9*ms, 10*ms)),
		)},
		{"a shortened life", leaseScript(
			holds(0, three, 1, fits(2, 10*ms, 10*ms)),
			holds(5*ms, three, 2, fits(1, 5*ms, 10*ms)),
			looks(9*ms, brief, fits(0, 1*ms, 2*ms)),
			looks(11*ms-1, three, fits(2, 1, 1)), // also if it is made longer again
		)},
		{"a clock that steps back", leaseScript(
			holds(100*ms, three, 1, fits(2, 10*ms, 10*ms)),
			holds(105*ms, three, 2, fits(1, 5*ms, 10*ms)),
			holds(103*ms, three, 3, fits(0, 7*ms, 10*ms)), // the second ends with it
			looks(103*ms, three, fits(0, 7*ms, 10*ms)),
			holds(50*ms, three, 4, short(0, 10*ms, 10*ms)),
			renews(55*ms, three, 1, true),
			releases(55*ms, three, 2),
			looks(55*ms, three, fits(1, 5*ms, 10*ms)),
			renews(20*ms, three, 9, false), // noticed by a call that finds nothing
			looks(30*ms-1, three, fits(1, 1, 1)),
			looks(30*ms, three, fits(3, 0, 0)),
		)},
	}
	for _, n := range []int64{100, core.MaxLeases} {
		tests = append(tests, namedTest{fmt.Sprint(n, " units"), func(t *testing.T, h Harness) { manyLeases(t, h, n) }})
	}
	return append(tests,
		namedTest{"beside another rule", besideAnother},
		namedTest{"several at once", severalLeases},
		namedTest{"several of a key", leasesOfAKey},
		namedTest{"wide ids", wideIDs},
		namedTest{"invalid", invalidLeases},
	)
}

// A leaseRow does one thing with a lease.
type leaseRow func(t *testing.T, h Harness, where, policy string, start int64)

func leaseScript(rows ...leaseRow) func(*testing.T, Harness) {
	return func(t *testing.T, h Harness) {
		for _, start := range starts {
			for i, row := range rows {
				row(t, h, fmt.Sprintf("row %d after %d", i, start), fmt.Sprint("leases", start), start)
			}
		}
	}
}

func lease(quota core.Quota, cost int64, id uint64) core.Charge {
	return core.Charge{Rule: "r", Key: "k", Quota: quota, Cost: cost, ID: id}
}

// takes takes a lease of some units under an id.
func takes(at int64, quota core.Quota, id uint64, cost int64, want core.Outcome) leaseRow {
	return func(t *testing.T, h Harness, where, policy string, start int64) {
		h.SetTime(start + at)
		d := take(t, h, policy, lease(quota, cost, id))
		if got := d.Outcomes()[0]; got != want || d.Allowed != want.Fits() {
			t.Errorf("%s: take %d:\ngot  %s\nwant %s", where, id, outcome(got), outcome(want))
		}
	}
}

// holds takes a lease of one unit; under no id it looks.
func holds(at int64, quota core.Quota, id uint64, want core.Outcome) leaseRow {
	return takes(at, quota, id, int64(min(1, id)), want)
}

func looks(at int64, quota core.Quota, want core.Outcome) leaseRow { return holds(at, quota, 0, want) }

func renews(at int64, quota core.Quota, id uint64, want bool) leaseRow {
	return func(t *testing.T, h Harness, where, policy string, start int64) {
		h.SetTime(start + at)
		held, err := Renew(t.Context(), h.Store, policy, []core.Charge{lease(quota, 1, id)})
		if err != nil || !slices.Equal(held, []bool{want}) {
			t.Errorf("%s: renew %d: held %v, %v; want %v", where, id, held, err, want)
		}
	}
}

func releases(at int64, quota core.Quota, id uint64) leaseRow {
	return func(t *testing.T, h Harness, where, policy string, start int64) {
		h.SetTime(start + at)
		if err := Release(t.Context(), h.Store, policy, []core.Charge{lease(quota, 1, id)}); err != nil {
			t.Errorf("%s: release %d: %v", where, id, err)
		}
	}
}
