package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// A lifeOfGrids is a key that versions of a rule with other windows charge.
type lifeOfGrids struct {
	*testing.T
	Harness
	now  int64
	last core.Decision
}

// at moves the clock to so many µs after the beginning of a day.
func (l *lifeOfGrids) at(after int64) {
	now := starts[0] - starts[0]%day + after
	if l.Elapse != nil && l.now != 0 {
		l.Elapse(now - l.now)
	}
	l.now = now
	l.SetTime(now)
}

func (l *lifeOfGrids) take(q core.Quota, cost int64) core.Decision {
	l.Helper()
	l.last = take(l.T, l.Harness, "policy", core.Charge{Rule: "r", Key: "k", Quota: q, Cost: cost})
	return l.last
}

func (l *lifeOfGrids) owe(q core.Quota, cost, age, most int64) core.Outcome {
	l.Helper()
	l.last = take(l.T, l.Harness, "policy", core.Charge{Rule: "r", Key: "k", Quota: q, Cost: cost, Debt: true, Age: age, MaxDebt: most})
	return first(l.last)
}

// giveBack gives units of the last charge back by a quota, as of a time after the beginning of
// the day.
func (l *lifeOfGrids) giveBack(q core.Quota, cost, at int64) int64 {
	l.Helper()
	r := core.Return{Charge: core.Charge{Rule: "r", Key: "k", Quota: q, Cost: cost}, At: starts[0] - starts[0]%day + at, Mode: l.last.Mode, Tag: l.last.Tag}
	units, err := Return(l.Context(), l.Store, "policy", []core.Return{r})
	if err != nil {
		l.Fatal(err)
	}
	return units[0]
}

func ownWindow(limit, window int64) core.Quota {
	return core.Quota{Algorithm: core.FixedWindow, Limit: limit, Window: window}
}

func clockWindow(limit, window int64) core.Quota {
	return core.Quota{Algorithm: core.FixedWindow, Limit: limit, Window: window, Aligned: true}
}

// grids tests what fixed windows of several versions know of each other where that is rare.
func grids() (tests []namedTest) {
	for name, test := range map[string]func(l *lifeOfGrids){
		// A window on the clock that comes has the units of the others up to its end, and the
		// next one only what was above the limit in it.
		"a window on the clock begins with units of one that has passed": func(l *lifeOfGrids) {
			l.at(5 * ms)
			l.take(ownWindow(2, day), 2)
			l.at(23 * ms)
			assert.Equal(l, core.Outcome{Remaining: 1}, l.owe(clockWindow(1, 10*ms), 1, 19*ms, 0))
		},
		// Only its own version knows when a day ends. What others take in it is kept for as long
		// as it may last.
		"a calendar of another version": func(l *lifeOfGrids) {
			daily, short := core.Quota{Algorithm: core.FixedWindow, Limit: 5, Window: day, Calendar: core.Calendar{Unit: core.Day, Zone: time.UTC}}, ownWindow(5, 10*ms)
			l.at(0)
			l.take(short, 1)
			l.take(daily, 1)
			l.at(26 * hour)
			l.take(short, 1)
			l.at(51 * hour)
			l.take(short, 3)
			l.at(54 * hour)
			assert.Equal(l, core.Outcome{Remaining: 1, MoreAfter: 18 * hour, ResetAfter: 18 * hour}, first(l.take(daily, 0)))
		},
		// What was taken before a debt is not in the state that the debt begins.
		"a debt begins a state": func(l *lifeOfGrids) {
			l.at(0)
			l.take(ownWindow(2, sec), 2)
			l.at(2 * hour)
			long := clockWindow(5, day)
			assert.EqualValues(l, 0, l.owe(long, 7, 0, 5).Remaining)
			assert.EqualValues(l, 0, l.giveBack(long, 2, 0))
			assert.EqualValues(l, 7, l.giveBack(long, 7, 2*hour))
		},
		// A version comes, is refused, and all others have gone out of use. It is alone, so the
		// next window counts what another one takes above what this one holds.
		"a refused version stays alone": func(l *lifeOfGrids) {
			long, short, daily := ownWindow(2, hour), clockWindow(200, 5*sec/2), clockWindow(5, day)
			l.at(0)
			l.take(long, 2)
			l.at(sec)
			l.take(short, 198)
			l.at(10_790 * sec)
			l.take(short, 200)
			l.at(15_000 * sec)
			assert.Equal(l, int64(day-15_000*sec), first(l.take(daily, 1)).RetryAfter)
			l.at(15_001 * sec)
			assert.True(l, l.take(short, 127).Allowed)
			assert.Equal(l, int64(2*day-15_001*sec), first(l.take(daily, 1)).RetryAfter)
		},
		// A window in debt that has nothing above its limit any more is as any other.
		"a debt is given back": func(l *lifeOfGrids) {
			long := ownWindow(2, hour)
			l.at(0)
			l.owe(long, 5, 0, 1)
			assert.EqualValues(l, 2, l.giveBack(long, 2, 0))
			l.at(hour - sec)
			l.take(clockWindow(2, 10*ms), 1)
			l.at(2*hour - 10*sec)
			d := l.take(long, 2)
			assert.False(l, d.Allowed)
			assert.Equal(l, core.Outcome{Remaining: 1, RetryAfter: 10 * sec, ResetAfter: 10 * sec}, first(d))
		},
		// A look by another version leaves no trace: the next window counts what another
		// algorithm takes above the limit.
		"a look before another algorithm": func(l *lifeOfGrids) {
			cells, long := core.Quota{Algorithm: core.SlidingCells, Limit: 60, Window: 10 * sec, Cells: 10}, clockWindow(13, 10*sec)
			l.at(0)
			l.take(cells, 1)
			l.take(long, 12)
			l.take(clockWindow(10, sec), 0)
			l.at(sec)
			l.take(cells, 20)
			l.at(2 * sec)
			assert.Equal(l, 18*int64(sec), first(l.take(long, 2)).RetryAfter)
		},
		// The version of a tally has asked for a debt that is too old to count. What another
		// algorithm takes then counts for as long as the window of that version.
		"a version without units is told": func(l *lifeOfGrids) {
			cells, short, long := core.Quota{Algorithm: core.SlidingCells, Limit: 9, Window: 10 * sec, Cells: 10}, clockWindow(20, sec), clockWindow(2, 60*sec)
			l.at(0)
			for range 2 {
				l.take(cells, 1)
				l.take(short, 1)
			}
			l.at(24 * sec)
			l.owe(long, 1, 70*sec, 1)
			l.at(25 * sec)
			l.take(cells, 1)
			l.at(26 * sec)
			assert.Equal(l, core.Outcome{Remaining: 1, MoreAfter: 34 * sec, ResetAfter: 34 * sec}, first(l.take(long, 0)))
		},
	} {
		tests = append(tests, namedTest{name, func(t *testing.T, h Harness) { test(&lifeOfGrids{T: t, Harness: h}) }})
	}
	return tests
}
