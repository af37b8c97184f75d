package guard

import (
	"context"
	"errors"

	"github.com/routelimit/limit/core"
)

// count counts what the store has admitted, and returns what is to be answered:
// that, unless this process has begun to decide alone meanwhile.
func (s *Store) count(
	ctx context.Context, policy string, charges []core.Charge, d core.Decision,
) (core.Decision, error) {
	if at, fit := s.fits(policy, charges); fit {
		d.Copied = at
		return d, nil
	}
	// More than the share, or by another clock: it is counted all the same.
	c := s.copies(charges)
	defer c.free()
	for i := range charges {
		c.yields[i] = true
	}
	own, err := c.take(policy)
	if err != nil {
		return core.Decision{}, err
	}
	// Now, and not before: whoever decides alone marks that first, and so
	// either finds this request counted, or is found here.
	now := s.now()
	if !s.doubtful(policy, charges, now) {
		d.Copied = own.At
		return d, nil
	}
	undo(context.Background(), s.own, policy, c.charges, &own)
	again, err := s.withOwn(policy, charges, now)
	if err != nil || !again.Allowed {
		undo(ctx, s.store, policy, charges, &d)
	}
	return again, err
}

// fits counts charges that fit into the share, and reports when, and whether
// they did.
func (s *Store) fits(policy string, charges []core.Charge) (at int64, fit bool) {
	if s.instances == 1 {
		own, err := s.own.Take(context.Background(), policy, charges)
		return own.At, err == nil && own.Allowed
	}
	c := s.copies(charges)
	defer c.free()
	own, err := c.take(policy)
	return own.At, err == nil && own.Allowed
}

// room looks what the share has left, and reports whether it has room for the
// charges that are in doubt, or have to do with a cell.
func (s *Store) room(policy string, charges []core.Charge, now int64, w *crowd) (core.Decision, bool) {
	c := s.copies(charges)
	defer c.free()
	c.widen(func(i int) bool { return s.doubts(policy, &charges[i], now) })
	c.look()
	d, err := c.take(policy)
	if err != nil {
		return d, false
	}
	for i, o := range d.Outcomes() {
		if charges[i].Cost > o.Remaining && (w.has(i) || s.doubts(policy, &charges[i], now)) {
			return d, false
		}
	}
	return d, true
}

// also decides by the share what the store has admitted, or would be asked to.
// Charges that are neither in doubt nor crowded are counted, but do not refuse.
func (s *Store) also(policy string, charges []core.Charge, now int64, w *crowd) (core.Decision, error) {
	c := s.copies(charges)
	defer c.free()
	doubtful := false
	for i := range charges {
		switch {
		case s.doubts(policy, &charges[i], now):
			doubtful = true
		case w.has(i):
			c.charges[i].Quota = whole(charges[i].Quota, s.instances)
		default:
			c.yields[i] = true
			c.charges[i].Quota = wider(charges[i].Quota, s.instances, 1)
		}
	}
	d, err := s.decide(policy, charges, c)
	if !doubtful {
		d.Mode = core.ModeOverflow
	}
	return d, err
}

// merge makes d, of the store, that of both: of what is in doubt or crowded, the
// lesser is left.
func (s *Store) merge(policy string, charges []core.Charge, now int64, d, own *core.Decision, w *crowd) {
	for i, o := range own.Outcomes() {
		of := &d.Outcomes()[i]
		if of.Fits() && o.Remaining < of.Remaining && (w.has(i) || s.doubts(policy, &charges[i], now)) {
			*of = o
		}
	}
	d.Delay = max(d.Delay, own.Delay)
	d.Copied = own.At
}

// errSlow is why nothing is asked where no call has failed.
var errSlow = errors.New("the store takes too long to answer")

// alone decides without the store, for a reason.
func (s *Store) alone(policy string, charges []core.Charge, now int64, reason error) (core.Decision, error) {
	d, err := s.without(policy, charges, now)
	if err == nil {
		s.outage.add(now, d.Mode, reason)
	}
	return d, err
}

// without decides as each charge wants.
func (s *Store) without(policy string, charges []core.Charge, now int64) (core.Decision, error) {
	for i := range charges {
		if charges[i].OnError == core.Refuse && charges[i].Cost > 0 {
			return s.refuse(policy, charges, now)
		}
	}
	d, err := s.withOwn(policy, charges, now)
	if err != nil {
		return d, err
	}
	for i := range charges {
		if charges[i].OnError == core.Refuse { // a look
			d.Outcomes()[i] = core.Outcome{MoreAfter: s.breaker.probeIn(now)}
		}
	}
	return d, nil
}

// withOwn decides by the share alone. Rules that allow are not asked, but what
// passes them is counted; of a queue it is not, since nobody waits for a turn.
func (s *Store) withOwn(policy string, charges []core.Charge, now int64) (core.Decision, error) {
	// Before the decision for the sake of [Store.count], and after it because
	// what it admits matters from then on.
	s.mark(policy, charges, now)
	defer func() { s.mark(policy, charges, s.now()) }()
	c := s.copies(charges)
	defer c.free()
	allowed := false
	for i := range charges {
		if charges[i].OnError != core.Allow {
			continue
		}
		allowed = allowed || charges[i].Cost > 0
		c.yields[i] = true
		if charges[i].Quota.Algorithm == core.Queue {
			c.charges[i].Cost = 0
		}
	}
	d, err := s.decide(policy, charges, c)
	if err != nil {
		return d, err
	}
	if d.Allowed && allowed {
		d.Mode = core.ModeAllowed
	}
	for i := range d.Outcomes() {
		switch o := &d.Outcomes()[i]; {
		case c.raised[i]:
			o.Remaining = 0
		case c.yields[i] && !o.Fits():
			o.RetryAfter, o.MoreAfter = 0, o.RetryAfter
		}
	}
	return d, nil
}

// refuse refuses because a rule wants that. Of the other rules it says what the
// share has left.
func (s *Store) refuse(policy string, charges []core.Charge, now int64) (core.Decision, error) {
	s.mark(policy, nil, now)
	c := s.copies(charges)
	defer c.free()
	c.look()
	d, err := s.decide(policy, charges, c)
	if err != nil {
		return d, err
	}
	d.Allowed, d.Mode = false, core.ModeRefused
	for i := range charges {
		if charges[i].OnError == core.Refuse && charges[i].Cost > 0 {
			d.Outcomes()[i] = core.Outcome{RetryAfter: s.breaker.probeIn(now)}
		}
	}
	return d, nil
}

// decide decides copies of charges, and says of the charges how they fared.
func (s *Store) decide(policy string, charges []core.Charge, c *copies) (core.Decision, error) {
	d, err := c.take(policy)
	if err != nil {
		return d, err
	}
	d.Mode = core.ModeLocal
	for i := range d.Outcomes() {
		o := &d.Outcomes()[i]
		if o.RetryAfter == core.Never && charges[i].Cost <= charges[i].Quota.Capacity() {
			// More than a share, but not more than the store can admit.
			o.RetryAfter = max(o.ResetAfter, s.breaker.probeIn(s.now()))
		}
	}
	return d, nil
}
