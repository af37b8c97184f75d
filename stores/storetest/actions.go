package storetest

import (
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// giveBack gives back what an admission took: all or a part, at once or late, some
// of it twice. Sometimes it resets a key instead.
func (s *schedule) giveBack() {
	if s.random.IntN(20) == 0 {
		s.reset()
		return
	}
	if len(s.loans) == 0 {
		return
	}
	last := len(s.loans) - 1
	at := max(0, last-s.random.IntN(1+s.random.IntN(10)))
	list := slices.Clone(s.loans[at])
	switch s.random.IntN(4) {
	case 0: // of two admissions, perhaps on the same quotas
		list = append(list, pick(s.random, s.loans)...)
	case 1: // of several that were near, perhaps at one time, or of one twice
		for range 1 + s.random.IntN(3) {
			list = append(list, s.loans[min(last, max(0, at-2+s.random.IntN(5)))]...)
		}
	}
	s.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	list = list[:1+s.random.IntN(min(len(list), core.MaxCharges))]
	for i := range list {
		r := &list[i]
		switch s.random.IntN(8) {
		case 0:
			r.Cost = s.random.Int64N(r.Cost + 1)
		case 1:
			r.Cost = (r.Cost + 1) / 2
		case 2: // more than it took
			r.Cost = min(core.MaxCost, r.Cost+s.random.Int64N(3))
		case 3: // by the current quota
			for _, rule := range s.rules {
				if rule.SameState(&r.Charge) {
					r.Quota = rule.Quota
				}
			}
		}
	}
	s.h.SetTime(s.now)
	got, err := s.h.Store.Return(s.t.Context(), list)
	s.trace = append(s.trace, step{at: s.now, other: fmt.Sprintf("gave back %v of %+v", got, list)})
	if err != nil || len(got) != len(list) {
		s.fail("%v", err)
	}
	want := s.returned(list)
	for i := range list {
		r := &list[i]
		id := nameOf(r.Charge)
		if got[i] != want[i] {
			s.fail("given back to %s: %+v, and by package core %+v", describe(r.Charge), got[i], want[i])
		}
		if got[i].Units > 0 {
			s.given++
		}
		l := s.ledgers[id]
		if l == nil || r.At > s.now || s.now-r.At >= r.Quota.Window {
			continue
		}
		if want := l.giveBack(r.At, r.Cost); got[i].Units != want {
			s.fail("%d given back to %s, and by definition %d", got[i].Units, describe(r.Charge), want)
		}
	}
	for _, r := range list { // a look dates anew what is ahead
		if l := s.ledgers[nameOf(r.Charge)]; l != nil {
			r.Cost, r.Reserve = 0, 0
			l.fits(r.Charge, s.now)
		}
	}
	s.asked += len(list)
}

// returned gives back in the model, and then looks at all keys.
func (s *schedule) returned(list []core.Return) []core.Returned {
	results, states := make([]core.Returned, len(list)), make([]core.State, len(list))
	for i := range list {
		r := &list[i]
		if states[i] = s.states[nameOf(r.Charge)]; states[i] == nil {
			states[i] = core.NewState(r.Quota.Algorithm)
		}
		results[i].Units = states[i].Return(r, s.now)
	}
	for i := range list {
		results[i].Outcome = core.Look(s.now, list[i].Charge, states[i])
	}
	return results
}

// loanOf returns what a decision took and can be given back.
func loanOf(charges []core.Charge, d core.Decision) (loan []core.Return) {
	for _, r := range returnsOf(charges, d) {
		if d.Allowed && !r.Debt && !r.Quota.Leases() {
			loan = append(loan, r)
		}
	}
	return loan
}

// reset resets a key, which must then be as new.
func (s *schedule) reset() {
	c := s.rules[s.random.IntN(len(s.rules))]
	c.Key = s.key()
	s.trace = append(s.trace, step{at: s.now, other: "reset of " + describe(c)})
	if err := s.h.Store.Reset(s.t.Context(), []core.Charge{{Policy: c.Policy, Rule: c.Rule, Variant: c.Variant, Key: c.Key}}); err != nil {
		s.fail("%v", err)
	}
	id := nameOf(c)
	delete(s.states, id)
	delete(s.ledgers, id)
	delete(s.left, id)
}

// name gives an id to each charge that takes a lease: mostly a new one.
func (s *schedule) name(charges []core.Charge) {
	for i := range charges {
		c := &charges[i]
		if !c.Quota.Leases() || c.Cost == 0 || c.ID != 0 {
			continue
		}
		if s.random.IntN(20) == 0 && len(s.leases) > 0 && !s.apart {
			c.ID = pick(s.random, s.leases).ID
			continue
		}
		s.ids++
		c.ID = s.ids * 0x9e3779b97f4a7c15 // spread over all bits, and never 0
	}
}

// keep remembers the leases that were taken.
func (s *schedule) keep(charges []core.Charge, d core.Decision) {
	for _, c := range charges {
		if d.Allowed && c.Quota.Leases() && c.ID != 0 {
			s.leases = append(s.leases, c)
		}
	}
}

// touch renews or releases leases, and compares with the model. Some are held,
// some have ended, some are of another key or were never taken.
func (s *schedule) touch() {
	if len(s.leases) == 0 || s.random.IntN(2) > 0 {
		return
	}
	var charges []core.Charge
	for range 1 + s.random.IntN(6) {
		c := pick(s.random, s.leases[max(0, len(s.leases)-8):]) // those before have ended or been released
		if s.random.IntN(8) == 0 {
			c = pick(s.random, s.leases)
		}
		for i := range s.rules { // by the current quota
			if s.rules[i].SameState(&c) {
				c.Quota = s.rules[i].Quota
			}
		}
		switch s.random.IntN(8) {
		case 0:
			c.ID = s.random.Uint64() | 1
		case 1:
			c.ID = pick(s.random, s.leases).ID
		case 2:
			c.Key = s.key()
		}
		charges = append(charges, c)
	}
	for range 1 + s.random.IntN(2) {
		if s.random.IntN(2) == 0 {
			s.renew(charges)
		} else {
			s.release(charges)
		}
	}
	for _, c := range charges { // what is left is compared
		c.Cost = 0
		s.take([]core.Charge{c})
	}
}

func (s *schedule) renew(charges []core.Charge) {
	s.h.SetTime(s.now)
	held, err := s.h.Store.Renew(s.t.Context(), charges)
	want := make([]bool, len(charges))
	for i, c := range charges {
		want[i] = s.stateOf(c).Renew(&c.Quota, s.now, c.ID)
		s.trace = append(s.trace, step{at: s.now, other: fmt.Sprintf("renew %s, lease %x: held=%v", describe(c), c.ID, want[i])})
	}
	if err != nil || !slices.Equal(held, want) {
		s.fail("held %v, %v", held, err)
	}
}

func (s *schedule) release(charges []core.Charge) {
	s.h.SetTime(s.now)
	if err := s.h.Store.Release(s.t.Context(), charges); err != nil {
		s.fail("release: %v", err)
	}
	for _, c := range charges {
		s.stateOf(c).Release(&c.Quota, s.now, c.ID)
		s.trace = append(s.trace, step{at: s.now, other: fmt.Sprintf("release %s, lease %x", describe(c), c.ID)})
	}
}

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
		if c.Quota.Missing > 0 || c.Quota.Queues() && refused.Outcomes()[i].RetryAfter < retry {
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
