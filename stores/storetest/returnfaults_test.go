package storetest

import (
	"slices"

	"github.com/routelimit/limit/core"
)

// A returnFault is a wrong way to give back or to reset, and the subtests that
// must find it.
type returnFault struct {
	found    string
	giveBack func(s *reference, returns []core.Return) ([]core.Returned, error)
	reset    func(s *reference, charges []core.Charge) error
}

var returnFaults = map[string]returnFault{
	"gives nothing back": {found: "Returns/several_at_once Schedules",
		giveBack: func(_ *reference, returns []core.Return) ([]core.Returned, error) {
			return make([]core.Returned, len(returns)), core.ValidateReturns(returns)
		}},
	"gives back, and says that it did not": {found: "Concurrent/several_asks,_some_given_back Schedules",
		giveBack: func(s *reference, returns []core.Return) ([]core.Returned, error) {
			given, err := s.giveBack(returns)
			for i := range given {
				given[i].Units = 0
			}
			return given, err
		}},
	"forgets when it was taken": {found: "Schedules",
		giveBack: other(func(s *reference, r *core.Return) { r.At = s.now })},
	"forgets what remained": {found: "Schedules",
		giveBack: other(func(_ *reference, r *core.Return) { r.Remaining = 0 })},
	"gives back all that was taken": {found: "Returns/several_at_once Schedules",
		giveBack: other(func(_ *reference, r *core.Return) { r.Cost *= 2 })},
	"gives back for others": {found: "Returns/of_nothing",
		giveBack: other(func(_ *reference, r *core.Return) { r.Key, r.Rule = "k", "r" })},
	"validates nothing": {found: "Calls/invalid_returns",
		giveBack: func(s *reference, returns []core.Return) ([]core.Returned, error) {
			if len(returns) == 0 || len(returns) > core.MaxCharges {
				return s.giveBack(returns)
			}
			return make([]core.Returned, len(returns)), nil
		}},
	"looks before it gives back": {found: "Schedules",
		giveBack: func(s *reference, returns []core.Return) ([]core.Returned, error) {
			before, err := s.giveBack(returns)
			if err != nil {
				return nil, err
			}
			for i := range before {
				before[i].Outcome.Remaining -= before[i].Units
			}
			return before, nil
		}},
	"joins what was taken at one time": {found: "Returns/one_after_the_other Schedules",
		giveBack: func(s *reference, returns []core.Return) ([]core.Returned, error) {
			joined, of := slices.Clone(returns), make([]int, len(returns))
			for i, r := range returns {
				of[i] = slices.IndexFunc(joined, func(o core.Return) bool { return o.SameState(&r.Charge) && o.Key == r.Key && o.At == r.At })
				if o := &joined[of[i]]; of[i] < i {
					o.Cost, o.Remaining = min(core.MaxCost, o.Cost+r.Cost), min(o.Remaining, r.Remaining)
					joined[i].Cost = 0
				}
			}
			together, err := s.giveBack(joined)
			given := slices.Clone(together)
			for i := range given {
				rest := &together[of[i]].Units
				given[i].Units = min(returns[i].Cost, *rest)
				*rest -= given[i].Units
			}
			return given, err
		}},
	"resets nothing": {found: "Schedules Calls/resets_of_several_keys",
		reset: func(*reference, []core.Charge) error { return nil }},
	"resets the first only": {found: "Calls/resets_of_several_keys",
		reset: func(s *reference, charges []core.Charge) error {
			s.forget(charges[:min(1, len(charges))])
			return core.ValidateNames(charges)
		}},
	"resets any number": {found: "Calls/resets_of_several_keys",
		reset: func(s *reference, charges []core.Charge) error {
			s.forget(charges)
			return nil
		}},
}

// other is a fault that gives back something else than it is asked to.
func other(change func(*reference, *core.Return)) func(*reference, []core.Return) ([]core.Returned, error) {
	return func(s *reference, returns []core.Return) ([]core.Returned, error) {
		if err := core.ValidateReturns(returns); err != nil {
			return nil, err
		}
		given := make([]core.Returned, len(returns))
		others := slices.Clone(returns)
		for i := range others {
			change(s, &others[i])
			one, err := s.giveBack(others[i : i+1])
			if err != nil {
				return nil, err
			}
			given[i] = one[0]
		}
		return given, nil
	}
}
