package core

// A State is what a store remembers of one key of one rule. Every algorithm
// answers the same few questions, and stores know no more of it. The quota may
// differ from that of an earlier call, but not in its algorithm, and times may
// step back. A State is not safe for concurrent use.
type State interface {
	// Advance brings the state to now, and returns how many units there is
	// room for: 0 or less if there is for none. It takes nothing, and a
	// decision that takes nothing leaves no trace, unless the clock has
	// stepped back.
	Advance(q *Quota, now int64) (room int64)

	// Take takes n units, of which there is room, and returns the room left.
	Take(n int64) (room int64)

	// Used returns how many units are missing from a quota that is whole.
	Used() int64

	// After returns how long until there is room for n units more than now if
	// nobody takes any, for n from 1 to Used.
	After(n int64) int64

	// Return gives units back at now, and returns how many: see [Return]. It
	// changes nothing else, and nothing at all if it gives none back.
	Return(r *Return, now int64) (given int64)

	// Expires returns the time from which the state is as good as new.
	Expires() int64
}

// NewState returns the state of a key that has never been charged.
func NewState(a Algorithm) State {
	switch a {
	case FixedWindow:
		return &Window{}
	case SlidingCells:
		return &Cells{}
	case SlidingCounter:
		return &Counter{}
	case TokenBucket:
		return &Bucket{}
	case LeakyBucket:
		return &Meter{}
	case Queue:
		return &Line{}
	case Concurrency:
		return &Leases{}
	}
	return &Log{}
}

// Decide is the decision that every store must make: at time now, given the
// states of the charges' keys, it takes all charges or none.
func Decide(now int64, charges []Charge, states []State) (d Decision) {
	d.start(now, len(charges))
	d.Allowed = true
	outcomes := d.Outcomes()
	for i := range charges {
		c := &charges[i]
		outcomes[i].Remaining = states[i].Advance(&c.Quota, now)
		d.Allowed = d.Allowed && c.fits(outcomes[i].Remaining)
	}
	for i := range charges {
		c, state, o := &charges[i], states[i], &outcomes[i]
		room := o.Remaining
		fits := c.fits(room)
		if d.Allowed && c.Cost > 0 {
			if leases, ok := state.(*Leases); ok {
				leases.holder = c.Lease
			}
			room = state.Take(c.Cost)
			if line, ok := state.(*Line); ok {
				d.Delay = max(d.Delay, line.Delay())
			}
		} else if bucket, ok := state.(*Bucket); ok && c.Cost > 0 {
			bucket.begin()
		}
		o.Remaining = max(0, room)
		used := state.Used()
		if used > 0 {
			o.ResetAfter = state.After(used)
		}
		switch {
		case fits && used > 0:
			// Of a lowered limit, more may be used than it allows.
			o.MoreAfter = state.After(1 - min(0, room))
		case fits:
		case c.Cost > c.Quota.Capacity():
			o.RetryAfter = Never
		default:
			o.RetryAfter = state.After(c.Cost - room)
		}
	}
	return d
}

// fits reports whether c fits where there is room. A cost of 0 always does.
func (c *Charge) fits(room int64) bool { return c.Cost <= room || c.Cost == 0 }
