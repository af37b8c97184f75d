package storetest

import (
	"slices"

	"github.com/routelimit/limit/core"
)

// A returnFault is a wrong way to give back or to reset, and the subtests that
// must find it.
type returnFault struct {
	found    string
	giveBack func(s *reference, policy string, returns []core.Return) ([]int64, error)
	keeps    bool // what is to be reset
}

var returnFaults = map[string]returnFault{
	"gives nothing back": {found: "Returns/token-bucket Returns/queue Schedules",
		giveBack: func(_ *reference, _ string, returns []core.Return) ([]int64, error) {
			return make([]int64, len(returns)), core.ValidateReturns(returns)
		}},
	"gives back, and says that it did not": {found: "Returns/cells Returns/at_once Schedules",
		giveBack: func(s *reference, policy string, returns []core.Return) ([]int64, error) {
			given, err := s.giveBack(policy, returns)
			clear(given)
			return given, err
		}},
	"forgets when it was taken": {found: "Returns/cells Returns/sliding_log_of_5 Schedules",
		giveBack: other(func(s *reference, r *core.Return) { r.At = s.now })},
	"forgets what remained": {found: "Returns/leaky-bucket,_after_it_was_full Schedules",
		giveBack: other(func(_ *reference, r *core.Return) { r.Remaining = 0 })},
	"gives back all that was taken": {found: "Returns/several_at_once Schedules",
		giveBack: other(func(_ *reference, r *core.Return) { r.Cost *= 2 })},
	"gives back for others": {found: "Returns/of_nothing",
		giveBack: other(func(_ *reference, r *core.Return) { r.Key, r.Rule = "k", "r" })},
	"validates nothing": {found: "Returns/invalid",
		giveBack: func(s *reference, policy string, returns []core.Return) ([]int64, error) {
			if len(returns) == 0 || len(returns) > core.MaxCharges {
				return s.giveBack(policy, returns)
			}
			return make([]int64, len(returns)), nil
		}},
	"resets nothing": {found: "Returns/sliding_log,_reset,_of_129 Schedules", keeps: true},
}

// other is a fault that gives back something else than it is asked to.
func other(change func(*reference, *core.Return)) func(*reference, string, []core.Return) ([]int64, error) {
	return func(s *reference, policy string, returns []core.Return) ([]int64, error) {
		if err := core.ValidateReturns(returns); err != nil {
			return nil, err
		}
		given := make([]int64, len(returns))
		others := slices.Clone(returns)
		for i := range others {
			change(s, &others[i])
			one, err := s.giveBack(policy, others[i:i+1])
			if err != nil {
				return nil, err
			}
			given[i] = one[0]
		}
		return given, nil
	}
}
