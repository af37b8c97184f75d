package storetest

import (
	"fmt"

	"github.com/routelimit/limit/core"
)

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
	return script{fmt.Sprintf("%d per %v", limit, micros(w)), []row{
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
