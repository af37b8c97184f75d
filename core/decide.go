package core

// A State is what a store remembers of one key of one rule. Stores know no more
// of an algorithm than these methods. The quota may differ from that of an
// earlier call, but not in its algorithm, and times may step back. A State is not
// safe for concurrent use.
type State interface {
	// Advance brings the state to now, and returns how many units there is
	// room for: 0 or less if there is for none. It takes nothing, and a
	// decision that takes nothing leaves no trace, unless the clock has
	// stepped back.
	Advance(q *Quota, now int64) (room int64)

	// Take takes n units, for which there is room. It returns the room left and
	// how long the units must wait, which only a queue makes them do. Lease is
	// [Charge].Lease.
	Take(n int64, lease uint64) (room, delay int64)

	// Refuse notes that a charge of at least one unit was refused. Only a bucket
	// that begins with tokens missing remembers that: it begins to fill.
	Refuse()

	// Used returns how many units are missing from the full quota.
	Used() int64

	// After returns how long until there is room for n units more than now if
	// none are taken meanwhile, for n from 1 to Used.
	After(n int64) int64

	// Return gives units back at now, and returns how many: see [Return]. It
	// changes nothing else, and nothing at all if it gives none back.
	Return(r *Return, now int64) (given int64)

	// Renew begins the life of a lease anew at now, and reports whether it was
	// held until then. A lease that has ended stays ended.
	Renew(q *Quota, now int64, lease uint64) (held bool)

	// Release ends a lease. If there is none, it does nothing.
	Release(q *Quota, now int64, lease uint64)

	// Clone returns a copy that shares no memory with the state.
	Clone() State

	// Expires returns the time from which the state is as good as new.
	Expires() int64
}

// Base has the methods of a [State] that most algorithms do not need: it
// remembers no refusals and has no leases.
type Base struct{}

// Refuse implements [State].
func (Base) Refuse() {}

// Renew implements [State].
func (Base) Renew(*Quota, int64, uint64) bool { return false }

// Release implements [State].
func (Base) Release(*Quota, int64, uint64) {}

// Decide is the decision that every store must make: at time now, given the
// states of the charges' keys, it takes all charges or none. It takes those that
// decide alone if they fit.
func Decide(now int64, charges []Charge, states []State) (d Decision) {
	d.Decide(now, charges, states)
	return d
}

// Decide makes the zero d what the function [Decide] returns. A Decision is large:
// a store that fills in its result saves a copy.
func (d *Decision) Decide(now int64, charges []Charge, states []State) {
	d.start(now, len(charges))
	d.Allowed = true
	outcomes := d.Outcomes()
	for i := range charges {
		c := &charges[i]
		outcomes[i].Remaining = states[i].Advance(&c.Quota, now)
		if c.Alone {
			d.SetAlone(i)
		} else {
			d.Allowed = d.Allowed && c.Fits(outcomes[i].Remaining)
		}
	}
	for i := range charges {
		c, state, o := &charges[i], states[i], &outcomes[i]
		room := o.Remaining
		fits := c.Fits(room)
		takes := d.Allowed
		if c.Alone {
			takes = fits
		}
		switch {
		case c.Cost == 0:
		case takes:
			var delay int64
			if room, delay = state.Take(c.Cost, c.Lease); !c.Alone {
				d.Delay = max(d.Delay, delay)
			}
		default:
			state.Refuse()
		}
		o.Remaining = max(0, room)
		used := state.Used()
		if used > 0 {
			o.ResetAfter = state.After(used)
		}
		switch {
		case fits && used > 0:
			// After a limit is lowered, more may be used than it allows.
			o.MoreAfter = state.After(1 - min(0, room))
		case fits:
		case c.Cost+c.Reserve > c.Quota.Capacity():
			o.RetryAfter = Never
		default:
			o.RetryAfter = state.After(c.Cost + c.Reserve - room)
		}
	}
}

// Fits reports whether c fits where there is room for so many units. A cost of 0
// always does.
func (c *Charge) Fits(room int64) bool { return c.Cost+c.Reserve <= room || c.Cost == 0 }
