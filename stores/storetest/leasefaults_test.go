package storetest

import (
	"context"
	"slices"

	"github.com/routelimit/limit/core"
)

func (s *reference) Renew(_ context.Context, charges []core.Charge) ([]bool, error) {
	if err := core.ValidateLeases(charges); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaseFault.renew != nil {
		return s.leaseFault.renew(s, charges), nil
	}
	return s.renew(charges), nil
}

func (s *reference) renew(charges []core.Charge) []bool {
	held := make([]bool, len(charges))
	for i, state := range s.statesOf(charges) {
		held[i] = state.Renew(&charges[i].Quota, s.now, charges[i].ID)
	}
	return held
}

func (s *reference) Release(_ context.Context, charges []core.Charge) error {
	if err := core.ValidateLeases(charges); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaseFault.release != nil {
		s.leaseFault.release(s, charges)
		return nil
	}
	s.release(charges)
	return nil
}

func (s *reference) release(charges []core.Charge) {
	for i, state := range s.statesOf(charges) {
		state.Release(&charges[i].Quota, s.now, charges[i].ID)
	}
}

// A leaseFault is a wrong way to renew or release, and the subtests that must
// find it. Its names are not those of faults.
type leaseFault struct {
	found   string
	renew   func(s *reference, charges []core.Charge) []bool
	release func(s *reference, charges []core.Charge)
}

var leaseFaults = map[string]leaseFault{
	"renews for too short a time": {found: "Schedules",
		renew: func(s *reference, charges []core.Charge) []bool {
			brief := slices.Clone(charges)
			for i := range brief {
				brief[i].Quota.Window = max(core.MinWindow, brief[i].Quota.Window-1)
			}
			return s.renew(brief)
		}},
	"renews what has ended": {found: "Schedules",
		renew: func(s *reference, charges []core.Charge) []bool {
			held := s.renew(charges)
			for i, state := range s.statesOf(charges) {
				if !held[i] && state.Advance(&charges[i].Quota, s.now) > 0 {
					core.Decide(s.now, charges[i:i+1], []core.State{state})
					held[i] = true
				}
			}
			return held
		}},
	"renews until the key expires": {found: "Expiry/of_leases_that_are_renewed",
		renew: func(s *reference, charges []core.Charge) []bool {
			id := nameOf(charges[0])
			ends, held := s.statesOf(charges)[0].Expires(), s.renew(charges)
			s.fault.forgets = func(core.Quota) int64 { return s.states[id].Expires() - ends }
			return held
		}},
	"renews all or none": {found: "Leases/several_of_a_key Schedules",
		renew: func(s *reference, charges []core.Charge) []bool {
			held := s.renew(charges)
			all := true
			for _, h := range held {
				all = all && h
			}
			for i := range held {
				held[i] = all
			}
			return held
		}},
	"releases nothing": {found: "Leases/wide_ids Schedules",
		release: func(*reference, []core.Charge) {}},
	"releases the first only": {found: "Leases/several_of_a_key Schedules",
		release: func(s *reference, charges []core.Charge) { s.release(charges[:1]) }},
	"releases another's": {found: "Leases/wide_ids",
		release: func(s *reference, charges []core.Charge) {
			for id := charges[0].ID - 1; id <= charges[0].ID+1; id++ {
				other := charges[0]
				other.ID = id
				s.release([]core.Charge{other})
			}
		}},
	"forgets ids above 53 bits": {found: "Leases/wide_ids",
		release: func(s *reference, charges []core.Charge) {
			s.release(charges)
			other := charges[0]
			other.ID ^= 1
			s.release([]core.Charge{other})
		}},
}
