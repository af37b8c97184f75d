package storetest

import (
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

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
