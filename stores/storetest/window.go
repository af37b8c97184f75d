package storetest

import (
	"fmt"

	"github.com/routelimit/limit/core"
)

// windows tests how long units count: from the time they are taken until before the
// end of their window.
func windows() []script {
	two, three, one := on("a", 2, 10*ms), on("a", 3, 10*ms), on("a", 1, 10*ms)
	all := []script{
		{"half open", []row{
			at(0, two(1, fits(1, 10*ms, 10*ms))),
			at(3*ms, two(1, fits(0, 7*ms, 10*ms))),
			at(3*ms, two(1, short(0, 7*ms, 10*ms))),
			at(10*ms-1, two(1, short(0, 1, 3*ms+1))),
			at(10*ms, two(1, fits(0, 3*ms, 10*ms))),
			at(13*ms-1, two(1, short(0, 1, 7*ms+1))),
			at(13*ms, two(1, fits(0, 7*ms, 10*ms))),
			at(23*ms-1, two(0, fits(1, 1, 1))),
			at(23*ms, two(0, fits(2, 0, 0))),
		}},
		{"refusals do not prolong", []row{
			at(0, one(1, fits(0, 10*ms, 10*ms))),
			at(2*ms, one(1, short(0, 8*ms, 8*ms))),
			at(5*ms, one(1, short(0, 5*ms, 5*ms))),
			at(10*ms-1, one(1, short(0, 1, 1))),
			at(10*ms, one(1, fits(0, 10*ms, 10*ms))),
			at(20*ms, one(1, fits(0, 10*ms, 10*ms))),
		}},
		{"retry is the time for this cost", []row{
			at(0, three(1, fits(2, 10*ms, 10*ms))),
			at(2*ms, three(1, fits(1, 8*ms, 10*ms))),
			at(5*ms, three(1, fits(0, 5*ms, 10*ms))),
			at(6*ms, three(1, short(0, 4*ms, 9*ms))),
			at(6*ms, three(2, short(0, 6*ms, 9*ms))),
			at(6*ms, three(3, short(0, 9*ms, 9*ms))),
			at(12*ms-1, three(2, short(1, 1, 3*ms+1))),
			at(12*ms, three(2, fits(0, 3*ms, 10*ms))),
			at(15*ms-1, three(1, short(0, 1, 7*ms+1))),
			at(15*ms, three(1, fits(0, 7*ms, 10*ms))),
		}},
		{"years pass", []row{
			at(0, three(3, fits(0, 10*ms, 10*ms))),
			at(5*366*day, three(0, fits(3, 0, 0))),
			at(5*366*day, three(3, fits(0, 10*ms, 10*ms))),
			at(5*366*day+1, three(1, short(0, 10*ms-1, 10*ms-1))),
		}},
	}
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
	one, two, three := on("a", 1, 10*ms), on("a", 2, 10*ms), on("a", 3, 10*ms)
	other := on("b", 2, 10*ms)
	all := []script{
		{"back behind all units", []row{
			at(20*ms, two(1, fits(1, 10*ms, 10*ms))),
			at(25*ms, two(1, fits(0, 5*ms, 10*ms))),
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
		{"back, noticed by a look", []row{
			at(20*ms, one(1, fits(0, 10*ms, 10*ms))),
			at(5*ms, one(0, fits(0, 10*ms, 10*ms))),
			at(14*ms, one(1, short(0, 1*ms, 1*ms))),
			at(15*ms, one(1, fits(0, 10*ms, 10*ms))),
		}},
		{"back, noticed by a refusal", []row{
			at(20*ms, one(1, fits(0, 10*ms, 10*ms))),
			at(5*ms, one(1, short(0, 10*ms, 10*ms))),
			at(14*ms, one(1, short(0, 1*ms, 1*ms))),
			at(15*ms, one(1, fits(0, 10*ms, 10*ms))),
		}},
		{"back, noticed by the refusal of another rule", []row{
			at(20*ms, one(1, fits(0, 10*ms, 10*ms)), other(1, fits(1, 10*ms, 10*ms))),
			at(5*ms, one(1, short(0, 10*ms, 10*ms)), other(1, fits(1, 10*ms, 10*ms))),
			at(14*ms, one(1, short(0, 1*ms, 1*ms)), other(1, fits(1, 1*ms, 1*ms))),
			at(15*ms, one(1, fits(0, 10*ms, 10*ms)), other(1, fits(1, 10*ms, 10*ms))),
		}},
		{"back by an hour", []row{
			at(hour, two(2, fits(0, 10*ms, 10*ms))),
			at(0, two(1, short(0, 10*ms, 10*ms))),
			at(10*ms-1, two(1, short(0, 1, 1))),
			at(10*ms, two(1, fits(1, 10*ms, 10*ms))),
		}},
		{"back again and again", []row{
			at(50*ms, two(2, fits(0, 10*ms, 10*ms))),
			at(45*ms, two(1, short(0, 10*ms, 10*ms))),
			at(40*ms, two(1, short(0, 10*ms, 10*ms))),
			at(35*ms, two(1, short(0, 10*ms, 10*ms))),
			at(45*ms, two(2, fits(0, 10*ms, 10*ms))),
		}},
		{"forth and back, with nothing taken there", []row{
			at(0, two(1, fits(1, 10*ms, 10*ms))),
			at(5*ms, two(1, fits(0, 5*ms, 10*ms))),
			at(12*ms, two(2, short(1, 3*ms, 3*ms))),
			at(8*ms, two(1, short(0, 2*ms, 7*ms))),
			at(10*ms, two(1, fits(0, 5*ms, 10*ms))),
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
