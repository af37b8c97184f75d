package core

// DecideLogs is [Decision.Decide] for charges of a [SlidingLog] that are no debts.
func (d *Decision) DecideLogs(now int64, charges []Charge, logs []*Log) {
	now = ClampTime(now)
	*d = Decision{Allowed: true}
	d.start(now, len(charges))
	outcomes := d.Outcomes()
	for i, l := range logs {
		c := &charges[i]
		room := l.Advance(&c.Quota, now)
		outcomes[i].Remaining = room
		if !c.fits(c.Cost, room) {
			d.Allowed = false
		}
	}
	for i, l := range logs {
		c, o := &charges[i], &outcomes[i]
		room := o.Remaining
		fits := d.Allowed || c.fits(c.Cost, room)
		if d.Allowed && c.Cost > 0 {
			room, _ = l.Take(c.Cost, 0)
		}
		o.Remaining = max(0, room)
		if l.left == l.size {
			if !fits {
				o.RetryAfter = Never
			}
			continue
		}
		end := l.Expires()
		o.ResetAfter = min(l.newest+l.window, end) - now
		switch {
		case fits:
			o.MoreAfter = min(l.at(l.left+int32(-min(0, room)))+l.window, end) - now
		case c.Cost+c.Reserve > c.Quota.Limit:
			o.RetryAfter = Never
		default:
			o.RetryAfter = l.After(c.Cost + c.Reserve - room)
		}
	}
}
