package storetest

import (
	"cmp"
	"slices"

	"github.com/routelimit/limit/core"
)

// A ledger is the definition of a sliding window: a list of units, counted anew
// each time. It checks a store independently of package core.
//
// Units ahead of now are dated now. Units that have left the window are
// forgotten when others are taken or dated anew, and would otherwise count again
// for a clock that steps back.
type ledger struct {
	quota core.Quota // when first charged
	units []unit     // what may still count
	all   []unit     // everything ever taken, but debts
	owed  bool       // whether there were any: a unit that is given back twice may be one, and make room
}

// A unit is some units taken at one time.
type unit struct{ at, n int64 }

func (l *ledger) live(window, now int64) int64 {
	var n int64
	for _, u := range l.units {
		if now-u.at < window {
			n += u.n
		}
	}
	return n
}

func (l *ledger) fits(c core.Charge, now int64) bool {
	redated := false
	for i := range l.units {
		if l.units[i].at > now {
			l.units[i].at = now
			redated = true
		}
	}
	if redated {
		l.forget(c.Quota.Window, now)
	}
	return c.Cost == 0 || l.live(c.Quota.Window, now)+c.Cost+c.Reserve <= c.Quota.Limit
}

func (l *ledger) take(c core.Charge, now int64) {
	if c.Cost == 0 {
		return
	}
	l.forget(c.Quota.Window, now)
	l.units = append(l.units, unit{now, c.Cost})
	l.all = append(l.all, unit{now, c.Cost})
}

// owe adds units that were used before, which may be more than fit.
func (l *ledger) owe(c core.Charge, now int64) {
	l.fits(c, now)
	at := max(0, now-c.Age)
	if c.Cost == 0 || now-at >= c.Quota.Window {
		return
	}
	l.forget(c.Quota.Window, now)
	l.owed = true
	l.units = append(l.units, unit{at, c.Cost})
	slices.SortStableFunc(l.units, func(a, b unit) int { return cmp.Compare(a.at, b.at) })
	var kept int64
	for i := len(l.units) - 1; i >= 0; i-- { // the newest units, as many as the limit
		l.units[i].n = min(l.units[i].n, c.Quota.Limit-kept)
		kept += l.units[i].n
	}
}

// giveBack removes up to n units of a time.
func (l *ledger) giveBack(at, n int64) int64 {
	remove := func(units []unit, n int64) (removed int64) {
		for i := range units {
			if u := &units[i]; u.at == at {
				some := min(u.n, n-removed)
				u.n -= some
				removed += some
			}
		}
		return removed
	}
	given := remove(l.units, n)
	remove(l.all, given)
	return given
}

func (l *ledger) forget(window, now int64) {
	l.units = slices.DeleteFunc(l.units, func(u unit) bool { return now-u.at >= window })
}

// excess looks for a window that has more units than the limit, and returns the
// time at which it begins, or 0. Windows that begin with a unit are enough.
func (l *ledger) excess() int64 {
	for i, first := range l.all {
		var n int64
		for _, u := range l.all[i:] {
			if u.at-first.at < l.quota.Window {
				n += u.n
			}
		}
		if n > l.quota.Limit {
			return first.at
		}
	}
	return 0
}
