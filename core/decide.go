package core

// A State is what a store remembers of one key of one rule. Stores know no more of an algorithm
// than these methods. The quota may differ from that of an earlier call, but not in its algorithm,
// and times may step back. A State is not safe for concurrent use.
type State interface {
	// Advance brings the state to now, and returns how many units there is room for: 0 or less if
	// there is for none. It takes nothing, and a decision that takes nothing leaves no trace,
	// unless the clock has stepped back.
	Advance(q *Quota, now int64) (room int64)

	// Needs returns for how many units c needs room now: its Cost, except for a ban
	// and for distinct values. 0 fits even where there is no room.
	Needs(c *Charge) int64

	// Take takes n units, which fit. It returns the room left and how long the
	// units must wait, which only a queue makes them do. Id is [Charge].ID.
	Take(n int64, id uint64) (room, delay int64)

	// Refuse notes that a charge that needs room was refused, and reports whether
	// the room has changed. A bucket that begins with tokens missing begins to fill,
	// and a ban counts a strike, unless it or another ban has barred the request.
	Refuse(barred bool) bool

	// Owe takes n units, at least 1, that were used at a time up to now: see [Charge].Debt. It
	// follows an Advance to now by the quota, and another one follows it. What has no effect any
	// more is dropped, and numbers end at what stores can keep. A state that a store has forgotten
	// since that time, as it was as good as new, counts as new then. If the key must repay the
	// debt, the next window of a [FixedWindow] counts what is above the limit.
	Owe(q *Quota, n, at int64, id uint64, repaid bool)

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

	// Expires returns the time from which the state is as good as new by its last quota. An earlier
	// quota may count units for longer, so a store keeps the state until the latest time that
	// Expires has returned.
	Expires() int64
}

// usual has the methods of a [State] as most algorithms have them: a charge needs its cost,
// refusals are not remembered, and there are no leases.
type usual struct{}

func (usual) Needs(c *Charge) int64            { return c.Cost }
func (usual) Refuse(bool) bool                 { return false }
func (usual) Renew(*Quota, int64, uint64) bool { return false }
func (usual) Release(*Quota, int64, uint64)    {}

// Decide is the decision that every store must make: at time now, given the
// states of the charges' keys, it takes all charges or none, and debts whatever the
// room. A time outside 0 to [MaxTime] is taken for the nearest one inside.
func Decide(now int64, charges []Charge, states []State) (d Decision) {
	d.Decide(now, charges, states)
	return d
}

// Decide sets d to what the function [Decide] returns. A Decision is large: a store
// that fills in its result saves a copy.
func (d *Decision) Decide(now int64, charges []Charge, states []State) {
	now = ClampTime(now)
	*d = Decision{Allowed: true}
	d.start(now, len(charges))
	barred := false // by a ban
	outcomes := d.Outcomes()
	for i := range charges {
		c := &charges[i]
		room := states[i].Advance(&c.Quota, now)
		outcomes[i].Remaining = room
		switch {
		case c.Debt:
			n := c.owes(room)
			d.Forgiven += c.Cost - n
			if n > 0 {
				states[i].Owe(&c.Quota, n, max(0, now-c.Age), c.ID, c.MaxDebt > 0)
				outcomes[i].Remaining = states[i].Advance(&c.Quota, now)
			}
		case !c.fits(states[i].Needs(c), room):
			d.Allowed = false
			barred = barred || c.Quota.Bars()
		}
	}
	for i := range charges {
		c, state, o := &charges[i], states[i], &outcomes[i]
		room, needs := o.Remaining, int64(0)
		switch {
		case !d.Allowed:
			needs = state.Needs(c)
			if needs > 0 && state.Refuse(barred) {
				room = state.Advance(&c.Quota, now)
			}
		case c.Cost > 0 && !c.Debt:
			var delay int64
			room, delay = state.Take(c.Cost, c.ID)
			d.Delay = max(d.Delay, delay)
		}
		o.Remaining = max(0, room)
		used := state.Used()
		if used > 0 {
			o.ResetAfter = state.After(used)
		}
		switch fits := c.fits(needs, room); {
		case fits && used > 0:
			// After a limit is lowered, more may be used than it allows.
			o.MoreAfter = state.After(1 - min(0, room))
		case fits:
		case needs+c.Reserve > c.Quota.Capacity():
			o.RetryAfter = Never
		default:
			o.RetryAfter = state.After(needs + c.Reserve - room)
		}
	}
}

// owes returns how many units a debt takes where there is room for so many, or is none.
func (c *Charge) owes(room int64) int64 {
	most := c.MaxDebt
	switch {
	case most == 0:
		return c.Cost
	case c.Quota.Refills():
		most = min(most, c.Quota.mostOwed()-c.Quota.Capacity())
	}
	return min(c.Cost, max(0, room+most))
}

// Fits reports whether c fits where there is room for so many units, if it needs
// room for its Cost. A cost of 0 always does.
func (c *Charge) Fits(room int64) bool { return c.fits(c.Cost, room) }

// fits is Fits for a charge that needs other units than its Cost.
func (c *Charge) fits(needs, room int64) bool { return needs == 0 || needs+c.Reserve <= room }
