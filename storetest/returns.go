package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/routelimit/limit/core"
)

// returns tells what comes back of what was taken, and what does not.
func returns() []namedTest {
	tests := []namedTest{
		{"several at once", returnsSeveral},
		{"of nothing", returnsNothing},
		{"invalid", returnsInvalid},
		{"at once", returnsAtOnce},
	}
	for _, l := range loans() {
		tests = append(tests, namedTest{l.name, func(t *testing.T, h Harness) {
			for _, start := range starts {
				l.run(t, h, start-start%sec)
			}
		}})
	}
	return tests
}

// A loan is a story of one key, units of which are taken and given back.
type loan struct {
	name  string
	quota core.Quota
	steps []exchange
}

// An exchange is one step of a loan. After it so much must remain.
type exchange struct {
	at     int64 // µs since the start
	what   what
	units  int64
	of     int   // which of what was taken is given back, from 0
	given  int64 // how many units must come back
	remain int64
}

type what int

const (
	admits what = iota
	refuses
	returnsUnits
	resets
)

func taken(at, units, remain int64) exchange {
	return exchange{at: at, what: admits, units: units, remain: remain}
}
func refused(at, units, remain int64) exchange {
	return exchange{at: at, what: refuses, units: units, remain: remain}
}
func back(at int64, of int, units, given, remain int64) exchange {
	return exchange{at: at, what: returnsUnits, of: of, units: units, given: given, remain: remain}
}
func reset(at, remain int64) exchange { return exchange{at: at, what: resets, remain: remain} }

func (l loan) run(t *testing.T, h Harness, start int64) {
	t.Helper()
	policy := fmt.Sprint(l.name, start)
	var out []core.Return
	for i, step := range l.steps {
		h.SetTime(start + step.at)
		charge := core.Charge{Rule: "r", Key: "k", Quota: l.quota, Cost: step.units}
		switch step.what {
		case admits, refuses:
			d := take(t, h, policy, charge)
			if d.Allowed != (step.what == admits) {
				t.Errorf("step %d after %d: allowed is %v", i, start, d.Allowed)
			}
			out = append(out, returnsOf([]core.Charge{charge}, d)...)
		case returnsUnits:
			r := out[step.of]
			r.Cost = step.units
			if given := giveBack(t, h, policy, r)[0]; given != step.given {
				t.Errorf("step %d after %d: %d given back, want %d", i, start, given, step.given)
			}
		case resets:
			if err := h.Store.Reset(t.Context(), policy, "r", "k"); err != nil {
				t.Fatal(err)
			}
		}
		charge.Cost = 0
		d := take(t, h, policy, charge)
		if got := d.Outcomes()[0].Remaining; got != step.remain {
			t.Errorf("step %d after %d: %d remain, want %d", i, start, got, step.remain)
		}
	}
}

// returnsOf returns what gives back all that an admission took.
func returnsOf(charges []core.Charge, d core.Decision) []core.Return {
	list := make([]core.Return, len(charges))
	for i, o := range d.Outcomes() {
		list[i] = core.Return{Charge: charges[i], At: d.At, Remaining: o.Remaining, ResetAfter: o.ResetAfter, Mode: d.Mode}
	}
	return list
}

func giveBack(t *testing.T, h Harness, policy string, returns ...core.Return) []int64 {
	t.Helper()
	given, err := h.Store.Return(t.Context(), policy, returns)
	if err != nil {
		t.Fatalf("policy %q, returns %+v: %v", policy, returns, err)
	}
	if len(given) != len(returns) {
		t.Fatalf("%d answers to %d returns", len(given), len(returns))
	}
	return given
}

func loans() []loan {
	all := []loan{
		{"fixed window of its own", core.Quota{Algorithm: core.FixedWindow, Limit: 5, Window: 10 * ms}, []exchange{
			taken(3*ms, 3, 2), taken(5*ms, 2, 0), back(6*ms, 0, 2, 2, 2), back(7*ms, 0, 3, 3, 5), // the second time of what is another's
			taken(7*ms, 4, 1), // a window of its own
			back(14*ms, 1, 2, 0, 1), back(17*ms-1, 2, 4, 4, 5), taken(20*ms, 1, 4), back(22*ms, 2, 4, 0, 4),
		}},
		{"fixed window, aligned", core.Quota{Algorithm: core.FixedWindow, Limit: 5, Window: 10 * ms, Aligned: true}, []exchange{
			taken(3*ms, 3, 2), taken(9*ms, 2, 0), back(10*ms-1, 0, 1, 1, 1), back(10*ms, 0, 2, 0, 5), taken(10*ms, 1, 4),
			back(11*ms, 1, 2, 0, 4), back(19*ms, 2, 1, 1, 5), back(8*ms, 2, 1, 0, 5),
		}},
		{"cells", core.Quota{Algorithm: core.SlidingCells, Limit: 6, Window: 10 * ms, Cells: 5}, []exchange{
			taken(1*ms, 3, 3), taken(5*ms, 3, 0), back(5*ms, 0, 2, 2, 2), back(11*ms, 1, 1, 1, 3), back(12*ms, 0, 1, 0, 4),
			back(15*ms, 1, 9, 2, 6), taken(15*ms, 6, 0), back(14*ms, 2, 6, 0, 0), back(16*ms, 2, 6, 6, 6),
		}},
		{"counter", core.Quota{Algorithm: core.SlidingCounter, Limit: 10, Window: 10 * ms}, []exchange{
			taken(4*ms, 6, 4), taken(9*ms, 4, 0), back(9*ms, 1, 1, 1, 1), taken(10*ms, 1, 0), back(15*ms, 0, 6, 6, 7),
			back(15*ms, 2, 1, 1, 8), back(20*ms-1, 1, 3, 3, 10), taken(20*ms, 1, 9), back(21*ms, 1, 1, 0, 9),
		}},
		{"queue", core.Quota{Algorithm: core.Queue, Limit: 2, Window: 10 * ms, Burst: 3}, []exchange{
			taken(0, 1, 3), taken(0, 1, 2), taken(0, 1, 1),
			back(1*ms, 1, 1, 0, 1),                                            // another stands behind
			back(1*ms, 0, 1, 0, 1),                                            // its turn has come
			back(2*ms, 2, 1, 1, 2),                                            // the last
			back(2*ms, 1, 1, 1, 3),                                            // and then the last
			taken(2*ms, 2, 1), back(7*ms, 3, 2, 1, 3), back(8*ms, 3, 1, 0, 3), // one of its turns has come
			taken(20*ms, 1, 3), taken(20*ms, 1, 2), back(19*ms, 5, 1, 0, 1),
		}},
	}
	for _, limit := range []int64{5, 128, 129, 300} {
		all = append(all, loan{fmt.Sprint("sliding log of ", limit), core.Quota{Limit: limit, Window: 10 * ms}, []exchange{
			taken(0, 2, limit-2), taken(3*ms, limit-2, 0), back(4*ms, 0, 1, 1, 1), back(4*ms, 1, limit-2, limit-2, limit-1),
			taken(4*ms, limit-1, 0), refused(5*ms, 1, 0), back(10*ms-1, 0, 2, 1, 1), back(10*ms, 0, 1, 0, 1),
			back(11*ms, 1, 1, 0, 1), taken(11*ms, 1, 0), back(12*ms, 2, 2, 2, 2), back(14*ms, 2, 1, 0, limit-1),
			back(9*ms, 4, 1, 0, limit-1-(limit-3)), // a clock that has stepped back dates it now …
			back(11*ms, 4, 1, 0, 2),                // … and it is not found
		}})
		all = append(all, loan{fmt.Sprint("sliding log, reset, of ", limit), core.Quota{Limit: limit, Window: hour}, []exchange{
			taken(0, limit, 0), reset(1*ms, limit), taken(1*ms, 1, limit-1), back(2*ms, 0, limit, 0, limit-1), reset(2*ms, limit), reset(2*ms, limit),
		}})
	}
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket} {
		q := core.Quota{Algorithm: a, Limit: 2, Window: 10 * ms, Burst: 10}
		all = append(all,
			loan{a.String(), q, []exchange{
				taken(0, 4, 6), back(0, 0, 4, 4, 10), // as if it had never been taken
				taken(0, 4, 6), back(1*ms, 1, 2, 2, 8), // as if it had cost two
				taken(20*ms, 4, 6), back(21*ms, 2, 4, 4, 10), taken(21*ms, 4, 6),
				back(51*ms, 3, 4, 0, 10), // it has come back by itself
			}},
			loan{a.String() + ", while others take", q, []exchange{
				taken(0, 4, 6), taken(10*ms, 5, 3), back(10*ms, 0, 4, 2, 5), // two have come back by themselves
				taken(15*ms, 6, 0), back(20*ms, 1, 5, 3, 4),
				back(35*ms, 2, 6, 0, 7), // who came when is not known so well: rather nothing than too much
			}},
			loan{a.String() + ", two in either order", q, []exchange{
				taken(0, 4, 6), taken(0, 4, 2), back(1*ms, 0, 4, 4, 6), back(1*ms, 1, 4, 4, 10), taken(50*ms, 4, 6), taken(50*ms, 4, 2),
				back(51*ms, 3, 4, 4, 6), back(51*ms, 2, 4, 4, 10),
			}},
			loan{a.String() + ", after it was whole", q, []exchange{
				taken(0, 5, 5), taken(0, 5, 0), back(0, 0, 5, 5, 5), // whole at 25 ms
				taken(30*ms, 5, 5), back(30*ms, 1, 5, 0, 5), // and so nothing of this would be left
			}},
			loan{a.String() + ", reset", q, []exchange{
				taken(0, 5, 5), taken(0, 5, 0), back(0, 0, 5, 5, 5), reset(0, 10), taken(0, 5, 5), back(0, 2, 5, 5, 10),
			}})
	}
	empty := core.Quota{Algorithm: core.TokenBucket, Limit: 2, Window: 10 * ms, Burst: 4, Missing: 4}
	return append(all, loan{"token-bucket, empty at first", empty, []exchange{
		refused(0, 1, 0), taken(20*ms, 4, 0), back(20*ms, 1, 4, 4, 4), taken(20*ms, 4, 0), reset(20*ms, 0), refused(20*ms, 1, 0), taken(25*ms, 1, 0),
	}})
}

// returnsSeveral gives back to several rules at once, each for itself.
func returnsSeveral(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var charges []core.Charge
	for i := range core.MaxCharges {
		q := core.Quota{Algorithm: core.Algorithm(i % 6), Limit: 20, Window: hour}
		switch q.Algorithm {
		case core.SlidingCells:
			q.Cells = 10
		case core.TokenBucket, core.LeakyBucket:
			q.Burst = 20
		}
		charges = append(charges, core.Charge{Rule: fmt.Sprint("r", i), Key: fmt.Sprint("k", i), Quota: q, Cost: int64(i) + 1})
	}
	list := returnsOf(charges, take(t, h, "policy", charges...))
	for i := range list {
		list[i].Cost = int64(i)
	}
	for i, given := range giveBack(t, h, "policy", list...) {
		if given != int64(i) {
			t.Errorf("%v: %d given back, want %d", charges[i].Quota.Algorithm, given, i)
		}
		charges[i].Cost = 0
	}
	d := take(t, h, "policy", charges...)
	for i, o := range d.Outcomes() {
		if o.Remaining != 19 {
			t.Errorf("%v: %d remain, want 19", charges[i].Quota.Algorithm, o.Remaining)
		}
	}
}

// returnsNothing gives back what was never taken: to a key that is not there, to
// that of another rule or policy.
func returnsNothing(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	charge := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 2}
	r := returnsOf([]core.Charge{charge}, take(t, h, "policy", charge))[0]
	for name, change := range map[string]func(r *core.Return) string{
		"another key":    func(r *core.Return) string { r.Key = "other"; return "policy" },
		"another rule":   func(r *core.Return) string { r.Rule = "other"; return "policy" },
		"another policy": func(*core.Return) string { return "other" },
		"another time":   func(r *core.Return) string { r.At--; return "policy" },
		"no units":       func(r *core.Return) string { r.Cost = 0; return "policy" },
	} {
		other := r
		if given := giveBack(t, h, change(&other), other); given[0] != 0 {
			t.Errorf("%s: %d given back", name, given[0])
		}
	}
	if err := h.Store.Reset(t.Context(), "policy", "r", "other"); err != nil {
		t.Error(err)
	}
	charge.Cost = 0
	d := take(t, h, "policy", charge)
	if got := d.Outcomes()[0].Remaining; got != 1 {
		t.Errorf("%d remain, want 1", got)
	}
}

// returnsInvalid makes calls that no store may carry out, and looks for traces.
func returnsInvalid(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	charge := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 2}
	good := returnsOf([]core.Charge{charge}, take(t, h, "policy", charge))[0]
	with := func(change func(*core.Return)) []core.Return {
		bad := good
		bad.Rule = "bad"
		change(&bad)
		return []core.Return{good, bad}
	}
	for name, list := range map[string][]core.Return{
		"none":                 nil,
		"a rule twice":         {good, good},
		"a negative number":    with(func(r *core.Return) { r.Cost = -1 }),
		"an enormous number":   with(func(r *core.Return) { r.Cost = core.MaxCost + 1 }),
		"a negative time":      with(func(r *core.Return) { r.At = -1 }),
		"an enormous time":     with(func(r *core.Return) { r.At = 1 << 62 }),
		"negative remaining":   with(func(r *core.Return) { r.Remaining = -1 }),
		"negative reset":       with(func(r *core.Return) { r.ResetAfter = -1 }),
		"no quota":             with(func(r *core.Return) { r.Quota = core.Quota{} }),
		"too many":             make([]core.Return, core.MaxCharges+1),
		"an unknown algorithm": with(func(r *core.Return) { r.Quota.Algorithm = 255 }),
	} {
		if given, err := h.Store.Return(t.Context(), "policy", list); !errors.Is(err, core.ErrCharges) || given != nil {
			t.Errorf("%s: given %v, error is %v, want core.ErrCharges", name, given, err)
		}
	}
	charge.Cost = 0
	d := take(t, h, "policy", charge)
	if got := d.Outcomes()[0].Remaining; got != 1 {
		t.Errorf("%d remain, want 1", got)
	}
}

// returnsAtOnce takes and gives back from many goroutines.
func returnsAtOnce(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	quota := core.Quota{Limit: 1_000, Window: sec}
	var kept atomic.Int64
	together(t, func(caller int) {
		for i := range 8 {
			charges := []core.Charge{{Rule: "a", Quota: quota, Cost: 3}, {Rule: "b", Key: fmt.Sprint(caller % 5), Quota: quota, Cost: 3}}
			d := tryTake(t, h, charges...)
			if !d.Allowed {
				continue
			}
			list := returnsOf(charges, d)
			list[0].Cost, list[1].Cost = int64(i%4), int64(i%4)
			if caller%2 == 0 {
				list[0], list[1] = list[1], list[0]
			}
			given, err := h.Store.Return(t.Context(), "policy", list)
			if err != nil || len(given) != 2 || given[0] != given[1] {
				t.Errorf("given %v, error %v", given, err)
				continue
			}
			kept.Add(3 - given[0])
		}
	})
	d := take(t, h, "policy", core.Charge{Rule: "a", Quota: quota})
	if spent := quota.Limit - d.Outcomes()[0].Remaining; spent != kept.Load() {
		t.Errorf("%d spent, want %d", spent, kept.Load())
	}
}
