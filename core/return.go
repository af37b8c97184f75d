package core

import (
	"errors"
	"fmt"
)

// A Return gives units of an admitted charge back to its quota: all of them, as
// if it had never been taken, or some, as if it had cost less.
//
// What comes back is never more than if the units had not been taken in the
// first place: no key gets more than a whole quota, and nothing reaches into
// another window. A unit whose time has passed does not come back, since its
// quota has come back already. Each algorithm says at its Return what it can
// give back. That others came meanwhile may cost a part of it.
//
// A second Return of the same admission is the caller's fault: stores do not
// number admissions, and may give back what others have taken, though never
// more than is missing. The same is true of a Return of what was taken before a
// Reset, or before a clock stepped back.
type Return struct {
	Charge           // as admitted, its quota included, but Cost is the units to give back, at most what it took
	At         int64 // of the admission: [Decision].At
	Remaining  int64 // of the admission: [Outcome].Remaining, for TokenBucket and LeakyBucket
	ResetAfter int64 // of the admission: [Outcome].ResetAfter, for Queue
	Mode       Mode  // of the admission: [Decision].Mode, for what stands around a store
	Tag        int64 // of the admission: [Decision].Tag, likewise
}

// Return returns what gives back all that the i-th charge c of an admission took.
func (d *Decision) Return(i int, c Charge) Return {
	o := &d.Outcomes()[i]
	return Return{Charge: c, At: d.TimeOf(i), Remaining: o.Remaining, ResetAfter: o.ResetAfter, Mode: d.Mode, Tag: d.Tag}
}

// MaxTime is the latest time that a [Return] may name, in the year 2255: the
// doubles of Redis scripts are exact up to it.
const MaxTime = int64(1)<<53 - 1

// ValidateReturns returns an error that wraps [ErrCharges] if returns cannot be
// carried out: their charges are not those of one decision, or a time or a
// number is none that a decision has. Every store calls it first.
func ValidateReturns(returns []Return) error {
	if len(returns) == 0 || len(returns) > MaxCharges {
		return fmt.Errorf("%w: %d to give back: write 1 to %d", ErrCharges, len(returns), MaxCharges)
	}
	var charges [MaxCharges]Charge
	var errs []error
	for i := range returns {
		r := &returns[i]
		charges[i] = r.Charge
		for _, n := range []struct {
			name      string
			got, most int64
		}{
			{"time", r.At, MaxTime}, {"remaining", r.Remaining, MaxLimit}, {"reset", r.ResetAfter, 2 * MaxFill},
		} {
			if n.got < 0 || n.got > n.most {
				errs = append(errs, fmt.Errorf("%w: rule %q: %s %d of the admission: write what its decision says, 0 to %d",
					ErrCharges, r.Rule, n.name, n.got, n.most))
			}
		}
		if r.Quota.Algorithm == Concurrency {
			errs = append(errs, fmt.Errorf("%w: rule %q: a lease is released, not returned: call Release", ErrCharges, r.Rule))
		}
	}
	return errors.Join(append(errs, ValidateCharges(charges[:len(returns)]))...)
}

// Return implements [State]: units dated exactly At leave the log, of which it
// does not matter whose they were. What a clock that has stepped back dated anew
// is not found.
func (l *Log) Return(r *Return, now int64) int64 {
	if r.At > now || now-r.At >= r.Quota.Window {
		return 0
	}
	var given int64
	var kept, gone int32
	for i := range l.size {
		at := l.at(i)
		if at == r.At && given < r.Cost {
			given++
			continue
		}
		if i < l.gone {
			gone++
		}
		l.ring[l.index(kept)] = at
		kept++
	}
	l.size, l.gone = kept, gone
	if kept > 0 {
		l.newest = l.at(kept - 1)
	}
	return given
}

// Return implements [State], while the window is that of At.
func (w *Window) Return(r *Return, now int64) int64 {
	from, until := w.start, w.start+r.Quota.Window
	if !r.Quota.anchored() {
		from, until = r.Quota.period(now)
	}
	if w.start != from || r.At < from || r.At > now || now >= until {
		return 0
	}
	given := min(r.Cost, w.count)
	w.count -= given
	return given
}

// Return implements [State], while the cell of At is in the window. Cells that
// another quota has laid give nothing back.
func (c *Cells) Return(r *Return, now int64) int64 {
	keep, length := r.Quota.Cells+1, r.Quota.cellLength()
	cell := r.At / length
	if c.length != length || int64(len(c.counts)) != keep || r.At > now || cell <= now/length-keep ||
		cell > c.newest || cell <= c.newest-keep {
		return 0
	}
	given := min(r.Cost, c.counts[cell%keep])
	c.counts[cell%keep] -= given
	return given
}

// Return implements [State], while the window of At is the current or the
// previous one.
func (c *Counter) Return(r *Return, now int64) int64 {
	window := r.Quota.Window
	index := r.At / window
	if c.window != window || r.At > now || now/window-index > 1 {
		return 0
	}
	var given int64
	switch index {
	case c.index:
		given = min(r.Cost, c.current)
		c.current -= given
	case c.index - 1:
		given = min(r.Cost, c.previous)
		c.previous -= given
	}
	return given
}

// Return implements [State]: turns that are the last of the line and have not
// come yet. Others stand behind any other turn, which passes unused. Once the
// last has left, the one before it is the last. More than one turn a microsecond
// cannot be told apart, and do not come back.
func (l *Line) Return(r *Return, now int64) int64 {
	s := &l.schedule
	end := s.end
	if s.part > 0 {
		end++
	}
	if s.limit != r.Quota.Limit || s.limit > r.Quota.Window || r.At > now || s.end < now || end != r.At+r.ResetAfter {
		return 0
	}
	s.now, s.window, s.ahead, s.aheadPart = now, r.Quota.Window, s.end-now, s.part
	given := min(r.Cost, s.units()-1) // but the one that is passing
	if given <= 0 {
		return 0
	}
	whole, rest := muldiv(given, s.window, s.limit)
	s.end, s.part = s.end-whole, s.part-rest
	if s.part < 0 {
		s.end, s.part = s.end-1, s.part+s.limit
	}
	return given
}

// Return implements [State] and gives nothing back: leases are released.
func (l *Leases) Return(*Return, int64) int64 { return 0 }
