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
			r.Cost += s.random.Int64N(3)
		case 3: // by the current quota
			for _, rule := range s.rules {
				if rule.Rule == r.Rule {
					r.Quota = rule.Quota
				}
			}
		}
	}
	s.h.SetTime(s.now)
	got, err := s.h.Store.Return(s.t.Context(), s.policy, list)
	s.trace = append(s.trace, step{at: s.now, other: fmt.Sprintf("gave back %v of %+v", got, list)})
	if err != nil || len(got) != len(list) {
		s.fail("%v", err)
	}
	for i := range list {
		r := &list[i]
		id := r.Rule + r.Key
		var want int64
		if state := s.states[id]; state != nil {
			want = state.Return(r, s.now)
		}
		if got[i] != want {
			s.fail("%d given back to %s, and by package core %d", got[i], describe(r.Charge), want)
		}
		l := s.ledgers[id]
		if l == nil || r.At > s.now || s.now-r.At >= r.Quota.Window {
			continue
		}
		if want := l.giveBack(r.At, r.Cost); got[i] != want {
			s.fail("%d given back to %s, and by definition %d", got[i], describe(r.Charge), want)
		}
	}
	s.asked++
	if slices.Max(got) > 0 {
		s.given++
	}
}

// loanOf returns what a decision took and can be given back.
func loanOf(charges []core.Charge, d core.Decision) (loan []core.Return) {
	for i, r := range returnsOf(charges, d) {
		if d.Took(i) && !r.Quota.Leases() {
			loan = append(loan, r)
		}
	}
	return loan
}

// reset resets a key, which must then be as new.
func (s *schedule) reset() {
	c := s.rules[s.random.IntN(len(s.rules))]
	c.Key = s.key()
	s.trace = append(s.trace, step{at: s.now, other: "reset of " + c.Rule + "/" + c.Key})
	if err := s.h.Store.Reset(s.t.Context(), s.policy, c.Rule, c.Key); err != nil {
		s.fail("%v", err)
	}
	id := c.Rule + c.Key
	delete(s.states, id)
	delete(s.ledgers, id)
	delete(s.left, id)
}
