package storetest

import (
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
)

// A loan is a script for one key: units are taken and given back.
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
	of     int   // the admission that is given back, from 0
	given  int64 // how many units must be given back
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
			if err := Reset(t.Context(), h.Store, policy, "r", "k"); err != nil {
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

func loans() []loan {
	all := []loan{
		{"fixed window of its own", core.Quota{Algorithm: core.FixedWindow, Limit: 5, Window: 10 * ms}, []exchange{
			taken(3*ms, 3, 2), taken(5*ms, 2, 0), back(6*ms, 0, 2, 2, 2), back(7*ms, 0, 3, 3, 5), // the second time, of units of the other admission
			taken(7*ms, 4, 1), // a window of its own
			back(14*ms, 1, 2, 0, 1), back(17*ms-1, 2, 4, 4, 5), taken(20*ms, 1, 4), back(22*ms, 2, 4, 0, 4),
			taken(40*ms, 2, 3), back(50*ms, 4, 2, 0, 5), // it is over
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
			back(1*ms, 0, 1, 0, 1),                                            // its turn has come
			back(2*ms, 2, 1, 1, 2),                                            // the last
			back(2*ms, 1, 1, 1, 3),                                            // and then the last
			taken(2*ms, 2, 1), back(7*ms, 3, 2, 1, 3), back(8*ms, 3, 1, 0, 3), // one of its turns has come
			taken(20*ms, 1, 3), taken(20*ms, 1, 2), back(19*ms, 5, 1, 0, 1),
		}},
		{"queue, in the middle", core.Quota{Algorithm: core.Queue, Limit: 2, Window: 10 * ms, Burst: 5}, []exchange{
			taken(0, 1, 5), taken(0, 2, 3), taken(0, 2, 1), taken(0, 1, 0),
			back(1*ms, 1, 2, 2, 2), refused(1*ms, 3, 2),
			back(1*ms, 1, 2, 0, 2),               // it is free already
			taken(1*ms, 1, 1), taken(1*ms, 1, 0), // one after the other
			back(2*ms, 5, 1, 1, 1), back(2*ms, 2, 2, 2, 2), // on both sides of a turn
			taken(2*ms, 2, 1), back(2*ms, 7, 1, 1, 1), // half of it
			taken(6*ms, 1, 1), // the first gap has passed
			back(6*ms, 8, 1, 1, 1), back(7*ms, 3, 1, 1, 3),
			taken(8*ms, 1, 2), taken(40*ms, 1, 5),
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
				back(51*ms, 3, 4, 0, 10), // it has been refilled
			}},
			loan{a.String() + ", while others take", q, []exchange{
				taken(0, 4, 6), taken(10*ms, 5, 3), back(10*ms, 0, 4, 2, 5), // two have been refilled
				taken(15*ms, 6, 0), back(20*ms, 1, 5, 3, 4),
				back(35*ms, 2, 6, 0, 7), // it is not known well enough what was taken when: nothing rather than too much
			}},
			loan{a.String() + ", two in either order", q, []exchange{
				taken(0, 4, 6), taken(0, 4, 2), back(1*ms, 0, 4, 4, 6), back(1*ms, 1, 4, 4, 10), taken(50*ms, 4, 6), taken(50*ms, 4, 2),
				back(51*ms, 3, 4, 4, 6), back(51*ms, 2, 4, 4, 10),
			}},
			loan{a.String() + ", after it was full", q, []exchange{
				taken(0, 5, 5), taken(0, 5, 0), back(0, 0, 5, 5, 5), // full at 25 ms
				taken(30*ms, 5, 5), back(30*ms, 1, 5, 0, 5), // and so nothing of this is lacking
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
