package core

// An Overflow says by which quotas a charge was decided, where a store has no
// room for a quota of every key.
type Overflow uint8

// The quotas that decide a charge.
const (
	OwnQuota    Overflow = iota // the key's own
	BothQuotas                  // the key's own, and the overflow quota that the key may have used until recently
	SharedQuota                 // an overflow quota, which the key shares with other new keys of its rule
)

// Overflow returns by which quotas charge i was decided.
func (d *Decision) Overflow(i int) Overflow { return Overflow(d.overflow >> (2 * i) & 3) }

// SetOverflow sets what [Decision.Overflow] returns for charge i. If that is not
// [OwnQuota], it raises Mode to [ModeOverflow].
func (d *Decision) SetOverflow(i int, o Overflow) {
	d.overflow = d.overflow&^(3<<(2*i)) | uint32(o)<<(2*i)
	if o != OwnQuota {
		d.Mode = max(d.Mode, ModeOverflow)
	}
}

// Set makes the outcome of charge i that of charge j of another decision, with its time and
// its overflow.
func (d *Decision) Set(i int, from *Decision, j int) {
	d.Outcomes()[i] = from.Outcomes()[j]
	d.SetTimeOf(i, from.TimeOf(j))
	d.SetOverflow(i, from.Overflow(j))
}

var _ [32 - 2*MaxCharges]struct{} // Decision.overflow has two bits for each charge

// OverflowQuota returns what the quotas of two keys of a rule must have in common for the keys to
// share an overflow quota: otherwise a short window would make it forget units that count in a
// longer one. A limit may differ, unless it is a rate: a changed limit keeps what was taken.
func (q Quota) OverflowQuota() Quota {
	if !q.Refills() {
		q.Limit = 0
	}
	return q
}
