package storetest

import (
	"testing"

	"github.com/routelimit/limit/core"
)

// algorithms tests what sets each algorithm apart. The other groups test the exact
// window.
func algorithms() []namedTest {
	tests := scripts(append(append(rates(), queues()...), script{"fixed window of its own", fixedWindow()}))
	for _, s := range grids() {
		tests = append(tests, namedTest{s.name, func(t *testing.T, h Harness) {
			for _, start := range starts {
				s.run(t, h, start-start%sec) // where windows and cells begin
			}
		}})
	}
	tests = append(tests, namedTest{"token-bucket, empty, for patient clients", patient})
	calendar := calendarDay()
	return append(tests, namedTest{calendar.name, func(t *testing.T, h Harness) { calendar.run(t, h, starts[0]) }})
}

func fixedWindow() []row {
	own := by("a", core.Quota{Algorithm: core.FixedWindow, Limit: 2, Window: 10 * ms})
	return []row{
		at(3*ms, own(1, fits(1, 10*ms, 10*ms))),
		at(12*ms, own(1, fits(0, 1*ms, 1*ms))),
		at(13*ms-1, own(1, short(0, 1, 1))),
		at(13*ms, own(2, fits(0, 10*ms, 10*ms))), // three within 1 ms
		at(13*ms, own(3, never(0, 10*ms))),
		at(8*ms, own(1, short(0, 10*ms, 10*ms))), // a clock that steps back
		at(18*ms, own(1, fits(1, 10*ms, 10*ms))),
	}
}

// grids are the scripts of windows and cells that begin by the clock.
func grids() []script {
	aligned := by("a", core.Quota{Algorithm: core.FixedWindow, Limit: 2, Window: 10 * ms, Aligned: true})
	cells := by("a", core.Quota{Algorithm: core.SlidingCells, Limit: 4, Window: 10 * ms, Cells: 5})
	long := by("a", core.Quota{Algorithm: core.SlidingCells, Limit: 10, Window: 10 * sec, Cells: 10})
	brief := by("a", core.Quota{Algorithm: core.SlidingCells, Limit: 10, Window: 100 * ms, Cells: 10})
	counter := by("a", core.Quota{Algorithm: core.SlidingCounter, Limit: 10, Window: 10 * ms})
	return []script{
		{"fixed window, aligned", []row{
			at(9*ms, aligned(2, fits(0, 1*ms, 1*ms))),
			at(10*ms, aligned(2, fits(0, 10*ms, 10*ms))), // four within 1 ms
			at(10*ms, aligned(1, short(0, 10*ms, 10*ms))),
			at(5*ms, aligned(1, short(0, 5*ms, 5*ms))), // a clock that steps back
			at(10*ms, aligned(1, fits(1, 10*ms, 10*ms))),
		}},
		{"cells", []row{
			at(1*ms, cells(3, fits(1, 11*ms, 11*ms))),
			at(5*ms, cells(1, fits(0, 7*ms, 11*ms))),
			at(6*ms, cells(1, short(0, 6*ms, 10*ms))),
			at(11*ms, cells(1, short(0, 1*ms, 5*ms))), // an exact window would have room
			at(12*ms, cells(3, fits(0, 4*ms, 12*ms))),
			at(16*ms-1, cells(2, short(0, 8*ms+1, 8*ms+1))),
			at(16*ms, cells(1, fits(0, 8*ms, 12*ms))),
			at(40*ms, cells(4, fits(0, 12*ms, 12*ms))),
			at(21*ms, cells(1, short(0, 11*ms, 11*ms))), // a clock that steps back
			at(32*ms, cells(4, fits(0, 12*ms, 12*ms))),
		}},
		{"cells of a changed window", []row{
			at(sec-1, long(3, fits(7, 10*sec+1, 10*sec+1))), // the end of a cell
			at(sec, long(2, fits(5, 10*sec, 11*sec))),       // the beginning of the next
			at(1_050*ms, brief(0, fits(5, 50*ms, 110*ms))),
			at(1_100*ms, brief(0, fits(8, 60*ms, 60*ms))),
			at(1_160*ms, brief(10, fits(0, 110*ms, 110*ms))),
		}},
		{"counter", []row{
			at(9*ms, counter(10, fits(0, 2*ms, 11*ms))),
			at(12*ms, counter(2, fits(0, 1*ms, 18*ms))), // twelve within 3 ms
			at(13*ms-1, counter(1, short(0, 1, 17*ms+1))),
			at(13*ms, counter(1, fits(0, 1*ms, 17*ms))),
			at(20*ms, counter(8, short(7, 3_334, 10*ms))),
			at(20*ms+3_334, counter(8, fits(0, 3_333, 20*ms-3_334))),
			at(5*ms, counter(1, short(0, 5*ms+1_819, 15*ms))), // a clock that steps back: 11 in this window
		}},
	}
}

// calendarDay has a day that begins at a quarter past six by UTC.
func calendarDay() script {
	daily := by("a", core.Quota{Algorithm: core.FixedWindow, Limit: 1, Window: day,
		Calendar: core.Calendar{Unit: core.Day, Zone: kathmandu}})
	const left = 11_300 * sec // of 2025-06-15, at 15:06:40 by UTC
	return script{"fixed window of a calendar", []row{
		at(0, daily(1, fits(0, left, left))),
		at(left-1, daily(1, short(0, 1, 1))),
		at(left, daily(1, fits(0, day, day))),
		at(left, daily(1, short(0, day, day))),
	}}
}

// rates are the scripts of buckets. A token bucket and a leaky bucket of the same
// burst make the same decisions.
func rates() []script {
	var all []script
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket} {
		two := by("a", core.Quota{Algorithm: a, Limit: 2, Window: 10 * ms, Burst: 3})
		thirds := by("a", core.Quota{Algorithm: a, Limit: 3, Window: 10 * ms, Burst: 2})
		all = append(all,
			script{a.String(), []row{
				at(0, two(3, fits(0, 5*ms, 15*ms))),
				at(4*ms, two(1, short(0, 1*ms, 11*ms))),
				at(6*ms, two(1, fits(0, 4*ms, 14*ms))), // and a fifth of the next
				at(10*ms-1, two(1, short(0, 1, 10*ms+1))),
				at(10*ms, two(1, fits(0, 5*ms, 15*ms))),
				at(20*ms, two(3, short(2, 5*ms, 5*ms))),
				at(hour, two(4, never(3, 0))),
				at(hour, two(3, fits(0, 5*ms, 15*ms))),
				at(0, two(1, short(0, 5*ms, 15*ms))), // a clock that steps back
				at(5*ms, two(1, fits(0, 5*ms, 15*ms))),
			}},
			script{a.String() + ", fractions", []row{
				at(0, thirds(2, fits(0, 3_334, 6_667))),
				at(3_333, thirds(1, short(0, 1, 3_334))),
				at(3_334, thirds(1, fits(0, 3_333, 6_666))),
				at(6_667, thirds(1, fits(0, 3_333, 6_667))),
				at(10*ms, thirds(1, fits(0, 3_334, 6_667))), // three in 10 ms, and none lost
			}},
			script{a.String() + ", burst lowered", []row{
				at(0, by("a", core.Quota{Algorithm: a, Limit: 10, Window: 10 * ms, Burst: 10})(10, fits(0, 1*ms, 10*ms))),
				at(0, by("a", core.Quota{Algorithm: a, Limit: 10, Window: 10 * ms, Burst: 2})(1, short(0, 1*ms, 2*ms))),
			}})
	}
	empty := by("a", core.Quota{Algorithm: core.TokenBucket, Limit: 2, Window: 10 * ms, Burst: 3, Missing: 3})
	return append(all, script{"token-bucket, empty at first", []row{
		at(0, empty(0, fits(0, 5*ms, 15*ms))),
		at(9*ms, empty(0, fits(0, 5*ms, 15*ms))), // a look does not begin it
		at(10*ms, empty(1, short(0, 5*ms, 15*ms))),
		at(15*ms-1, empty(1, short(0, 1, 10*ms+1))),
		at(15*ms, empty(1, fits(0, 5*ms, 15*ms))),
		at(30*ms+hour-1, empty(0, fits(3, 0, 0))), // it has been full for almost an hour
		at(30*ms+hour, empty(0, fits(0, 5*ms, 15*ms))),
		at(30*ms+hour, empty(1, short(0, 5*ms, 15*ms))),
		at(35*ms+hour, empty(1, fits(0, 5*ms, 15*ms))),
	}})
}

func queues() []script {
	two := by("a", core.Quota{Algorithm: core.Queue, Limit: 2, Window: 10 * ms, Burst: 2})
	slow := by("b", core.Quota{Algorithm: core.Queue, Limit: 1, Window: 10 * ms, Burst: 5})
	thirds := by("a", core.Quota{Algorithm: core.Queue, Limit: 3, Window: 10 * ms, Burst: 3})
	hasty := by("a", core.Quota{Algorithm: core.Queue, Limit: 2, Window: 10 * ms, Burst: 9, MaxWait: 4 * ms})
	return []script{
		{"queue", []row{
			at(0, two(1, fits(2, 5*ms, 5*ms))),
			at(0, two(1, fits(1, 5*ms, 10*ms))).delayed(5 * ms),
			at(0, two(1, fits(0, 5*ms, 15*ms))).delayed(10 * ms),
			at(0, two(1, short(0, 5*ms, 15*ms))),
			at(5*ms, two(1, fits(0, 5*ms, 15*ms))).delayed(10 * ms),
			at(100*ms, two(2, fits(1, 5*ms, 10*ms))), // no faster after a pause
			at(101*ms, two(1, fits(0, 4*ms, 14*ms))).delayed(9 * ms),
			at(101*ms, two(4, never(0, 14*ms))),
			at(50*ms, two(1, short(0, 5*ms, 15*ms))), // a clock that steps back
		}},
		{"queue, fractions", []row{
			at(0, thirds(1, fits(3, 3_334, 3_334))),
			at(0, thirds(1, fits(2, 3_334, 6_667))).delayed(3_334),
			at(0, thirds(1, fits(1, 3_334, 10*ms))).delayed(6_667),
			at(0, thirds(1, fits(0, 3_334, 13_334))).delayed(10 * ms),
		}},
		{"queue, longest wait", []row{
			at(0, hasty(1, fits(0, 1*ms, 5*ms))),
			at(0, hasty(1, short(0, 1*ms, 5*ms))),
			at(1*ms-1, hasty(1, short(0, 1, 4*ms+1))),
			at(1*ms, hasty(1, fits(0, 5*ms, 9*ms))).delayed(4 * ms),
		}},
		{"two queues", []row{
			at(0, two(1, fits(2, 5*ms, 5*ms)), slow(1, fits(5, 10*ms, 10*ms))),
			at(0, two(1, fits(1, 5*ms, 10*ms)), slow(1, fits(4, 10*ms, 20*ms))).delayed(10 * ms),
			at(0, two(2, short(1, 5*ms, 10*ms)), slow(1, fits(4, 10*ms, 20*ms))), // a refusal waits for nothing
			at(0, two(1, fits(0, 5*ms, 15*ms)), slow(0, fits(4, 10*ms, 20*ms))).delayed(10 * ms),
			at(100*ms, slow(1, fits(5, 10*ms, 10*ms)), two(1, fits(2, 5*ms, 5*ms))),
			at(100*ms, slow(1, fits(4, 10*ms, 20*ms)), two(1, fits(1, 5*ms, 10*ms))).delayed(10 * ms),
		}},
	}
}
