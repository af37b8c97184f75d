package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// Durations in the unit of package core.
const (
	ms   = 1_000
	sec  = 1_000 * ms
	hour = 3600 * sec
	day  = 24 * hour
)

// A script is a list of charges at given times, with the outcomes that they must
// have.
type script struct {
	name string
	rows []row
}

// A row is one decision. It must be admitted if and only if all of its charges fit.
type row struct {
	at    int64 // µs since the start of the script
	mets  []met
	delay int64 // in queues
}

// A met is a charge and the outcome that it must have.
type met struct {
	charge  core.Charge
	outcome core.Outcome
}

func at(at int64, mets ...met) row { return row{at: at, mets: mets} }

// delayed returns r with a delay.
func (r row) delayed(delay int64) row { r.delay = delay; return r }

// on returns a function that charges a rule of an exact window by a cost.
func on(rule string, limit, window int64) func(cost int64, outcome core.Outcome) met {
	return by(rule, core.Quota{Limit: limit, Window: window})
}

// by returns a function that charges a rule by a cost.
func by(rule string, quota core.Quota) func(cost int64, outcome core.Outcome) met {
	return func(cost int64, outcome core.Outcome) met {
		return met{core.Charge{Rule: rule, Key: "k", Quota: quota, Cost: cost}, outcome}
	}
}

func fits(remaining, more, reset int64) core.Outcome {
	return core.Outcome{Remaining: remaining, MoreAfter: more, ResetAfter: reset}
}

func short(remaining, retry, reset int64) core.Outcome {
	return core.Outcome{Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

// Where scripts start: on some day, and so that the low 32 bits of the time
// overflow within the first milliseconds, since stores may keep no more.
var starts = []int64{1_750_000_000_000_000, 407_000<<32 - 5*ms}

func scripts(all []script) []namedTest {
	tests := make([]namedTest, len(all))
	for i, s := range all {
		tests[i] = namedTest{s.name, func(t *testing.T, h Harness) {
			for _, start := range starts {
				s.run(t, h, start)
			}
		}}
	}
	return tests
}

func (s script) run(t *testing.T, h Harness, start int64) {
	t.Helper()
	policy := fmt.Sprint(s.name, start)
	for i, row := range s.rows {
		where := fmt.Sprintf("row %d, %v after %d", i, core.Duration(row.at), start)
		charges, allowed := make([]core.Charge, len(row.mets)), true
		for j, m := range row.mets {
			charges[j] = m.charge
			allowed = allowed && m.outcome.Fits()
		}
		h.SetTime(start + row.at)
		d := take(t, h, policy, charges...)
		assert.Equal(t, allowed, d.Allowed, where)
		assert.Equal(t, start+row.at, d.At, where)
		assert.Equal(t, row.delay, d.Delay, where)
		for j, got := range d.Outcomes() {
			assert.Equal(t, row.mets[j].outcome, got, "%s, %s", where, describe(charges[j]))
		}
	}
}

func describe(c core.Charge) string {
	text := fmt.Sprintf("%s%s/%s %d of %d per %v, %v", c.Rule, c.Variant, c.Key, c.Cost, c.Quota.Limit, core.Duration(c.Quota.Window), c.Quota.Algorithm)
	if c.Reserve > 0 {
		text += fmt.Sprintf(", reserve %d", c.Reserve)
	}
	if c.Debt {
		text += fmt.Sprintf(", a debt %d us old, at most %d", c.Age, c.MaxDebt)
	}
	return text
}

func outcome(o core.Outcome) string {
	return fmt.Sprintf("fits=%v remaining=%d retry=%d more=%d reset=%d",
		o.Fits(), o.Remaining, o.RetryAfter, o.MoreAfter, o.ResetAfter)
}

// windows tests how long units count: from the time they are taken until before the
// end of their window. A refusal does not prolong that.
func windows() (all []script) {
	for _, w := range []int64{
		core.MinWindow, 10*ms + 1, 1_900 * ms, 2 * sec, hour, core.MaxWindow,
		1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 1, 72 * 60 * sec, // 32 bits of µs end at 71.6 minutes
	} {
		for _, limit := range []int64{2, 128, 129} {
			all = append(all, halves(limit, w))
		}
	}
	return all
}

// halves takes the halves of a limit half a window apart.
func halves(limit, w int64) script {
	a := on("a", limit, w)
	first := limit / 2
	second, half := limit-first, w/2
	return script{fmt.Sprintf("%d per %v", limit, core.Duration(w)), []row{
		at(0, a(first, fits(second, w, w))),
		at(half, a(second, fits(0, w-half, w))),
		at(half+1, a(1, short(0, w-half-1, w-1))),
		at(half+1, a(limit, short(0, w-1, w-1))),
		at(w-1, a(1, short(0, 1, half+1))),
		at(w, a(first, fits(0, half, w))),
		at(w+half-1, a(1, short(0, 1, w-half+1))),
		at(w+half-1, a(second, short(0, 1, w-half+1))),
		at(w+half, a(second, fits(0, w-half, w))),
		at(2*w+half-1, a(limit, short(first, 1, 1))),
		at(2*w+half, a(limit, fits(0, w, w))),
		at(4*w, a(0, fits(limit, 0, 0))),
	}}
}

// clocks tests clocks that step back. Units ahead of now are dated now, whatever
// the decision; the others stay.
//
// A store may forget a key that was full again when it was last charged, so no
// script goes back to before that.
func clocks() []script {
	one, two, three, other := on("a", 1, 10*ms), on("a", 2, 10*ms), on("a", 3, 10*ms), on("b", 2, 10*ms)
	all := []script{
		{"back behind all units", []row{
			at(hour, two(1, fits(1, 10*ms, 10*ms))),
			at(hour+5*ms, two(1, fits(0, 5*ms, 10*ms))),
			at(5*ms, two(1, short(0, 10*ms, 10*ms))),
			at(15*ms-1, two(1, short(0, 1, 1))),
			at(15*ms, two(2, fits(0, 10*ms, 10*ms))),
		}},
		{"back behind some units", []row{
			at(20*ms, three(1, fits(2, 10*ms, 10*ms))),
			at(25*ms, three(1, fits(1, 5*ms, 10*ms))),
			at(23*ms, three(1, fits(0, 7*ms, 10*ms))),
			at(30*ms, three(1, fits(0, 3*ms, 10*ms))),
			at(33*ms, three(2, fits(0, 7*ms, 10*ms))),
		}},
		{"back, noticed by the refusal of another rule", []row{
			at(20*ms, one(1, fits(0, 10*ms, 10*ms)), other(1, fits(1, 10*ms, 10*ms))),
			at(5*ms, one(1, short(0, 10*ms, 10*ms)), other(1, fits(1, 10*ms, 10*ms))),
			at(14*ms, one(1, short(0, 1*ms, 1*ms)), other(1, fits(1, 1*ms, 1*ms))),
			at(15*ms, one(1, fits(0, 10*ms, 10*ms)), other(1, fits(1, 10*ms, 10*ms))),
		}},
	}
	for _, limit := range []int64{128, 129} {
		a := on("a", limit, 2*sec)
		all = append(all, script{fmt.Sprintf("back, %d units", limit), []row{
			at(3*sec, a(limit-1, fits(1, 2*sec, 2*sec))),
			at(4*sec, a(1, fits(0, 1*sec, 2*sec))),
			at(3500*ms, a(1, short(0, 1500*ms, 2*sec))),
			at(1*sec, a(1, short(0, 2*sec, 2*sec))),
			at(3*sec-1, a(1, short(0, 1, 1))),
			at(3*sec, a(limit, fits(0, 2*sec, 2*sec))),
		}})
	}
	return all
}

// stacks tests that several rules are decided together.
func stacks() (all []script) {
	for _, n := range []int{2, 4, 5, core.MaxCharges} {
		all = append(all, stack(n))
	}
	return all
}

// stack charges n rules. One of them has less room than the others: first the first
// rule, then the second, and so on.
func stack(n int) script {
	const w = 10 * ms
	s := script{name: fmt.Sprintf("%d rules", n)}
	for least := range n {
		meet := func(after int64, open, shut core.Outcome) row {
			r := at(int64(least)*w + after)
			for i := range n {
				name := fmt.Sprint("r", i)
				if i == least {
					r.mets = append(r.mets, on(name, 1, w)(1, shut))
				} else {
					r.mets = append(r.mets, on(name, 3, w)(1, open))
				}
			}
			return r
		}
		reversed := meet(2, fits(2, w-2, w-2), short(0, w-2, w-2))
		slices.Reverse(reversed.mets)
		s.rows = append(s.rows,
			meet(0, fits(2, w, w), fits(0, w, w)),
			meet(1, fits(2, w-1, w-1), short(0, w-1, w-1)),
			reversed,
			meet(w-1, fits(2, 1, 1), short(0, 1, 1)))
	}
	return s
}
