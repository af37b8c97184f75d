package storetest

import (
	"fmt"

	"github.com/routelimit/limit/core"
)

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
	s := script{name: fmt.Sprintf("%d rules", n)}
	row := func(time int64, met func(i int) met) {
		r := at(time)
		for i := range n {
			r.mets = append(r.mets, met(i))
		}
		s.rows = append(s.rows, r)
	}
	for i := range n {
		start := int64(i) * 10 * ms
		rule := func(j int) func(int64, core.Outcome) met {
			limit := int64(3)
			if j == i {
				limit = 1
			}
			return on(fmt.Sprint("r", j), limit, 10*ms)
		}
		full := func(j int, open core.Outcome, shut core.Outcome) met {
			if j == i {
				return rule(j)(1, shut)
			}
			return rule(j)(1, open)
		}
		row(start, func(j int) met { return full(j, fits(2, 10*ms, 10*ms), fits(0, 10*ms, 10*ms)) })
		row(start+1, func(j int) met { return full(j, fits(2, 10*ms-1, 10*ms-1), short(0, 10*ms-1, 10*ms-1)) })
		row(start+2, func(j int) met {
			return full(n-1-j, fits(2, 10*ms-2, 10*ms-2), short(0, 10*ms-2, 10*ms-2))
		})
		row(start+10*ms-1, func(j int) met { return full(j, fits(2, 1, 1), short(0, 1, 1)) })
	}
	return s
}

// changes tests that a rule keeps what has been spent when its limit is changed.
func changes() (all []script) {
	// 128 is where a store may change from one form to another.
	sizes := []int64{2, 127, 128, 129, 130, 300}
	for _, from := range sizes {
		for _, to := range sizes {
			if from != to {
				all = append(all, changed(from, to))
			}
		}
	}
	return all
}

// changed spends a limit to the last unit, and continues under another one.
func changed(from, to int64) script {
	const w = 10 * ms
	old, now := on("a", from, w), on("a", to, w)
	if from < to {
		return script{fmt.Sprintf("from %d to %d", from, to), []row{
			at(0, old(from-1, fits(1, w, w))),
			at(1, now(1, fits(to-from, w-1, w))),
			at(2, old(1, short(0, w-2, w-1))),
			at(3, now(to-from, fits(0, w-3, w))),
			at(4, now(1, short(0, w-4, w-1))),
			at(w, now(from, short(from-1, 1, 3))),
			at(w, now(from-1, fits(0, 1, w))),
			at(w+3, now(to-from+1, fits(0, w-3, w))),
		}}
	}
	last := int64(w - 2) // until from-to units have left, in the last row
	if from-to > to-1 {
		last = w - 1
	}
	return script{fmt.Sprintf("from %d to %d", from, to), []row{
		at(0, old(from-1, fits(1, w, w))),
		at(1, old(1, fits(0, w-1, w))),
		at(2, now(1, short(0, w-2, w-1))),
		at(2, now(to, short(0, w-1, w-1))),
		at(w-1, now(1, short(0, 1, 2))),
		at(w, now(to, short(to-1, 1, 1))),
		at(w, now(to-1, fits(0, 1, w))),
		at(w+1, old(from-to, fits(1, w-1, w))),
		at(w+2, now(1, short(0, last, w-1))),
	}}
}
