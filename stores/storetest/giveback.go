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
	loan := s.loans[max(0, last-s.random.IntN(1+s.random.IntN(10)))]
	list := slices.Clone(loan)
	if s.random.IntN(4) == 0 { // of two admissions, perhaps on the same quotas
		list = append(list, pick(s.random, s.loans)...)
	}
	s.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	list = list[:1+s.random.IntN(len(list))]
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
