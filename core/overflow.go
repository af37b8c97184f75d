package core

// Overflow reports whether charge i was decided by an overflow quota: one that
// new keys share because the store has no room for a quota of their own. A key
// that recently left an overflow quota is also charged there, until what it may
// have taken no longer counts.
func (d *Decision) Overflow(i int) bool { return d.overflow>>i&1 != 0 }

// SetOverflow makes [Decision.Overflow] report true for charge i, and raises
// Mode to [ModeOverflow].
func (d *Decision) SetOverflow(i int) {
	d.overflow |= 1 << i
	d.Mode = max(d.Mode, ModeOverflow)
}

// OverflowQuota returns what the quotas of two keys of a rule must have in
// common for the keys to share an overflow quota: otherwise a key with a short
// window would make the shared quota forget units that count in a longer one. A
// limit may differ, unless it is a rate: a changed limit keeps what was taken.
func (q Quota) OverflowQuota() Quota {
	switch q.Algorithm {
	case TokenBucket, LeakyBucket, Queue:
	default:
		q.Limit = 0
	}
	return q
}
