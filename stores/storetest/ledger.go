package storetest

import (
	"cmp"
	"slices"

	"github.com/routelimit/limit/core"
)

// A ledger is the definition of a sliding window: a list of units, counted anew
// each time. It checks a store independently of package core.
//
// Units ahead of now are dated now. Units that have left the longest window of those
// that took them are forgotten when others are taken or dated anew, and would otherwise
// count again for a clock that steps back.
type ledger struct {
	quota core.Quota // when first charged
	kept  core.Quota // the longest window and the largest limit since the key was new
	units []unit     // what may still count
	all   []unit     // everything ever taken, but debts
	owed  bool       // whether there were any: a unit that is given back twice may be one, and make room
}

// A unit is some units taken at one time.
type unit struct{ at, n int64 }

// isNew reports whether no unit counts any more.
func (l *ledger) isNew(now int64) bool {
	return len(l.units) == 0 || now-l.units[len(l.units)-1].at >= l.kept.Window
}

func (l *ledger) live(window, now int64) int64 {
	var n int64
	if l.isNew(now) {
		return 0
	}
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
		l.forget(c.Quota, now)
	}
	return c.Cost == 0 || l.live(c.Quota.Window, now)+c.Cost+c.Reserve <= c.Quota.Limit
}

func (l *ledger) take(c core.Charge, now int64) {
	if c.Cost == 0 {
		return
	}
	l.forget(c.Quota, now)
	l.units = append(l.units, unit{now, c.Cost})
	l.trim()
	l.all = append(l.all, unit{now, c.Cost})
}

// owe adds units that were used before, which may be more than fit.
func (l *ledger) owe(c core.Charge, now int64) {
	l.fits(c, now)
	at := max(0, now-c.Age)
	longest := c.Quota.Window
	if !l.isNew(now) {
		longest = max(longest, l.kept.Window)
	}
	if c.Cost == 0 || now-at >= longest {
		return
	}
	l.forget(c.Quota, now)
	l.owed = true
	l.units = append(l.units, unit{at, c.Cost})
	slices.SortStableFunc(l.units, func(a, b unit) int { return cmp.Compare(a.at, b.at) })
	l.trim()
}

// trim keeps the newest units, as many as the largest limit.
func (l *ledger) trim() {
	var kept int64
	for i := len(l.units) - 1; i >= 0; i-- {
		l.units[i].n = min(l.units[i].n, l.kept.Limit-kept)
		kept += l.units[i].n
	}
	l.units = slices.DeleteFunc(l.units, func(u unit) bool { return u.n == 0 })
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
	l.units = slices.DeleteFunc(l.units, func(u unit) bool { return u.n == 0 })
	remove(l.all, given)
	return given
}

func (l *ledger) forget(q core.Quota, now int64) {
	if l.isNew(now) {
		l.units, l.kept = nil, core.Quota{}
	}
	l.kept.Window, l.kept.Limit = max(l.kept.Window, q.Window), max(l.kept.Limit, q.Limit)
	l.units = slices.DeleteFunc(l.units, func(u unit) bool { return now-u.at >= l.kept.Window })
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
