package core

// DecideLogs is [Decision.Decide] for charges of a [SlidingLog] that are no debts.
func (d *Decision) DecideLogs(now int64, charges []Charge, logs []*Log) {
	now = ClampTime(now)
	d.restart(now, len(charges))
	outcomes, charges := d.Outcomes()[:len(logs)], charges[:len(logs)]
	allowed := true
	for i, l := range logs {
		c := &charges[i]
		room := l.Advance(&c.Quota, now)
		outcomes[i].Remaining = room
		allowed = allowed && c.fits(c.Cost, room)
	}
	d.Allowed = allowed
	for i, l := range logs {
		c, o := &charges[i], &outcomes[i]
		room := o.Remaining
		fits := allowed || c.fits(c.Cost, room)
		if allowed && c.Cost > 0 {
			room, _ = l.Take(c.Cost, 0)
		}
		*o = Outcome{Remaining: max(0, room)}
		if l.left == l.size {
			if !fits {
				o.RetryAfter = Never
			}
			continue
		}
		window := l.quota.window()
		end := l.newest + l.kept.window()
		o.ResetAfter = min(l.newest+window, end) - now
		switch {
		case fits:
			o.MoreAfter = min(l.at(l.left+int32(-min(0, room)))+window, end) - now
		case c.Cost+c.Reserve > c.Quota.Limit:
			o.RetryAfter = Never
		default:
			o.RetryAfter = l.After(c.Cost + c.Reserve - room)
		}
	}
}
