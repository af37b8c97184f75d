package storetest

import (
	"slices"

	"github.com/routelimit/limit/core"
)

// lookAgain looks at what was refused, and must find it untouched but for strikes,
// which the refusal shows already.
func (s *schedule) lookAgain(charges []core.Charge, refused core.Decision) {
	looks := slices.Clone(charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	d := s.take(looks)
	for i, o := range d.Outcomes() {
		was := refused.Outcomes()[i]
		if !o.Fits() && !charges[i].Quota.Bars() || o.Remaining != was.Remaining || o.ResetAfter != was.ResetAfter {
			s.fail("a refusal has left a trace in %s", describe(charges[i]))
		}
	}
}

// tryAgain waits for RetryAfter and must then be admitted, but not earlier. The
// exceptions are a bucket that is new again by then, a queue with a gap that has passed
// by then, a value that has left a window whose limit was lowered, and a ban, for which
// trying earlier is a strike.
func (s *schedule) tryAgain(charges []core.Charge, refused core.Decision) {
	retry := refused.RetryAfter()
	if retry == core.Never || slices.ContainsFunc(charges, func(c core.Charge) bool {
		return c.Quota.Bars() || s.changes && c.Quota.Algorithm == core.Distinct
	}) {
		return
	}
	fewer := false
	for i, c := range charges {
		if c.Quota.Missing > 0 || c.Quota.Queues() && refused.Outcomes()[i].Fits() {
			later := s.states[nameOf(c)].Clone()
			fewer = fewer || !c.Fits(later.Advance(&c.Quota, s.now+retry))
		}
	}
	s.pass(retry - 1)
	if s.take(charges).Allowed {
		s.fail("admitted before RetryAfter")
	}
	s.pass(1)
	if !s.take(charges).Allowed && !fewer {
		s.fail("refused after RetryAfter")
	}
}

// takeTurns charges other keys of the rules that refused, together with the same
// keys of the rules that did not, and then asks again. The answer to that must not
// be older than what was taken meanwhile.
func (s *schedule) takeTurns(charges []core.Charge, refused core.Decision) {
	others := slices.Clone(charges)
	for i, o := range refused.Outcomes() {
		if others[i].Quota.Leases() {
			others[i].ID = 0 // a new one
		}
		if !o.Fits() {
			others[i].Key = s.key()
		}
	}
	for range 1 + s.random.IntN(3) {
		s.take(others)
		s.pass(s.random.Int64N(2) * s.random.Int64N(1+max(0, refused.RetryAfter())))
		s.take(charges)
	}
}
