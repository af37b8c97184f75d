package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// A fault is a wrong way to decide, and the subtests that must find it.
type fault struct {
	found string
	take  func(s *reference, charges []core.Charge) (core.Decision, error)

	asks    func(s *reference, asks []core.Ask) error // in place of take
	forgets func(q core.Quota) int64                  // how much too early keys expire

	shortens bool // the last quota alone says when a key expires
}

// early returns how much too early a key expires.
func (f *fault) early(q core.Quota) int64 {
	if f.forgets == nil {
		return 0
	}
	return f.forgets(q)
}

var faults = map[string]fault{
	"expires by the last version": {found: "Expiry/of_a_long_window_after_a_short_one", shortens: true},
	"window too long": {found: "Window/2_per_10.001ms Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Window++ })},
	"window too short": {found: "Window/2_per_10.001ms Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Window = max(core.MinWindow, c.Quota.Window-1) })},
	"window in 32 bits": {found: "Window/2_per_1h12m0s Window/2_per_1h11m34.967296s Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Window = max(core.MinWindow, c.Quota.Window&(1<<32-1)) })},
	"one unit more": {found: "Window/2_per_10.001ms Concurrent/one_key Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Limit++ })},
	"looks take": {found: "Window/2_per_10.001ms Schedules",
		take: altered(func(c *core.Charge) { c.Cost = max(c.Cost, 1) })},
	"each charge is one": {found: "Window/2_per_10.001ms Concurrent/several_asks,_some_given_back Schedules",
		take: altered(func(c *core.Charge) { c.Cost = min(c.Cost, 1) })},
	"keys cut": {found: "Names/keys",
		take: altered(func(c *core.Charge) { c.Key = c.Key[:min(64, len(c.Key))] })},
	"keys cleaned": {found: "Names/keys",
		take: altered(func(c *core.Charge) { c.Key = string([]rune(c.Key)) })},
	"names joined": {found: "Names/borders",
		take: altered(func(c *core.Charge) { c.Rule, c.Key = "", c.Rule+":"+c.Key })},
	"names joined by slashes": {found: "Names/separators",
		take: altered(func(c *core.Charge) { c.Rule, c.Key = "", c.Rule+"/"+c.Key })},
	"limit in the key": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Rule += string(rune(c.Quota.Limit)) })},
	"algorithm in the key": {found: "VersionsOfAlgorithms",
		take: altered(func(c *core.Charge) { c.Rule += c.Quota.Algorithm.String() })},
	"policies joined": {found: "Names/policies",
		take: altered(func(c *core.Charge) { c.Policy = "" })},
	"variants joined": {found: "Names/variants Schedules",
		take: altered(func(c *core.Charge) { c.Variant = "" })},
	"rules and variants joined": {found: "Names/borders",
		take: altered(func(c *core.Charge) { c.Rule, c.Variant = c.Rule+"~"+c.Variant, "" })},

	"costs in 32 bits": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Cost &= 1<<32 - 1 })},
	"takes what is left to others": {found: "Asks/with_reserves_of_their_own Schedules",
		take: altered(func(c *core.Charge) { c.Reserve = 0 })},
	"windows of their own": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Aligned = false })},
	"no calendar": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Calendar = core.Calendar{} })},
	"full at first": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Missing = 0 })},
	"queues for any time": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Quota.MaxWait = 0 })},
	"bars never double": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Quota.MaxBar = min(c.Quota.MaxBar, c.Quota.Bar) })},
	"half as many cells": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Quota.Cells -= c.Quota.Cells / 3 })},
	"one id for all": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.ID = min(c.ID, 1) })},

	"debts only as far as they fit": {found: "Debts/above_the_limit Schedules",
		take: altered(func(c *core.Charge) { c.Debt, c.Age = false, 0 })},
	"debts of now": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Age = 0 })},
	"debts a microsecond too young": {found: "Schedules",
		take: altered(func(c *core.Charge) { c.Age = max(0, c.Age-1) })},

	"takes what fits of a refusal": {found: "Rules/2_rules Rules/16_rules Concurrent/several_asks,_some_given_back Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			for i, o := range d.Outcomes() {
				if !d.Allowed && o.Fits() {
					s.statesOf(charges)[i].Take(charges[i].Cost, charges[i].ID)
				}
			}
			return d, err
		}},
	"refusals count": {found: "Window/2_per_10.001ms Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			for i, o := range d.Outcomes() {
				if !o.Fits() && o.RetryAfter != core.Never {
					s.statesOf(charges)[i].Take(charges[i].Cost, charges[i].ID)
				}
			}
			return d, err
		}},
	"the first refusal ends it": {found: "Rules/16_rules Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			first := slices.IndexFunc(d.Outcomes(), func(o core.Outcome) bool { return !o.Fits() })
			for i := range d.Outcomes() {
				if first >= 0 && i > first {
					d.Outcomes()[i] = core.Outcome{Remaining: charges[i].Quota.Limit}
				}
			}
			return d, err
		}},
	"retry too early": {found: "Window/2_per_10.001ms Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			for i := range d.Outcomes() {
				d.Outcomes()[i].RetryAfter = max(0, d.Outcomes()[i].RetryAfter-1)
			}
			return d, err
		}},
	"no delay": {found: "Algorithms/two_queues Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			d.Delay = 0
			return d, err
		}},
	"more too late": {found: "Window/2_per_10.001ms Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			for i, o := range d.Outcomes() {
				d.Outcomes()[i].MoreAfter += min(o.MoreAfter, 1)
			}
			return d, err
		}},
	"another clock": {found: "Window/2_per_10.001ms Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			d.At++
			return d, err
		}},
	"no validation": {found: "Calls/a_rule_twice Calls/too_many_charges Calls/a_negative_cost",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			return core.Decide(s.now, charges, s.statesOf(charges)), nil
		}},
	"validation comes late": {found: "Calls/a_rule_twice Calls/an_unknown_algorithm",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			if _, err := s.take(charges[:min(1, len(charges))]); err != nil {
				return core.Decision{}, err
			}
			return s.take(charges)
		}},
	"sorts the caller's charges": {found: "Calls/charges_are_left_as_they_are",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			d, err := s.take(charges)
			slices.SortFunc(charges, func(a, b core.Charge) int { return len(a.Key) - len(b.Key) - int(a.Cost-b.Cost) })
			return d, err
		}},

	"a refusal refuses the asks behind it": {found: "Asks/many_rules Schedules",
		asks: func(s *reference, asks []core.Ask) error {
			if err := core.ValidateAsks(asks); err != nil {
				return err
			}
			for i := range asks {
				if err := s.takeAll(asks[i : i+1]); err != nil || !asks[i].Decision.Allowed {
					return err
				}
			}
			return nil
		}},
	"takes a later ask that does not fit": {found: "Schedules",
		asks: func(s *reference, asks []core.Ask) error {
			if err := core.ValidateAsks(asks); err != nil {
				return err
			}
			err := s.takeAll(asks)
			for _, ask := range asks[1:] {
				for i, state := range s.statesOf(ask.Charges) {
					if o := ask.Decision.Outcomes()[i]; !ask.Decision.Allowed && o.RetryAfter != core.Never {
						state.Take(ask.Charges[i].Cost, ask.Charges[i].ID)
					}
				}
			}
			return err
		}},
	"asks do not see each other": {found: "Asks/with_reserves_of_their_own Schedules",
		asks: func(s *reference, asks []core.Ask) error {
			if err := core.ValidateAsks(asks); err != nil {
				return err
			}
			decisions := make([]core.Decision, len(asks))
			for i := range asks {
				states := maps.Clone(s.states)
				for id, state := range states {
					s.states[id] = state.Clone()
				}
				decisions[i], _ = s.take(asks[i].Charges)
				s.states = states
			}
			err := s.takeAll(asks)
			for i := range asks {
				asks[i].Decision = decisions[i]
			}
			return err
		}},
	"asks in another order": {found: "Asks/with_reserves_of_their_own Schedules",
		asks: func(s *reference, asks []core.Ask) error {
			if err := core.ValidateAsks(asks); err != nil {
				return err
			}
			for i := len(asks) - 1; i >= 0; i-- {
				if err := s.takeAll(asks[i : i+1]); err != nil {
					return err
				}
			}
			return nil
		}},
	"asks are decided as one": {found: "Asks/many_rules Schedules",
		asks: func(s *reference, asks []core.Ask) error {
			if err := core.ValidateAsks(asks); err != nil {
				return err
			}
			var all []core.Charge
			for _, ask := range asks {
				all = append(all, ask.Charges...)
			}
			d := core.Decide(s.now, all, s.statesOf(all))
			n := 0
			for i := range asks {
				asks[i].Decision = core.NewDecision(s.now, len(asks[i].Charges))
				asks[i].Decision.Allowed = d.Allowed
				n += copy(asks[i].Decision.Outcomes(), d.Outcomes()[n:])
			}
			return nil
		}},
	"asks are validated one by one": {found: "Calls/invalid_asks",
		asks: func(s *reference, asks []core.Ask) error { return s.takeAll(asks) }},

	"forgets when the clock steps back": {found: "Clock/back_behind_all_units Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			if s.now < s.last {
				clear(s.states)
			}
			s.last = s.now
			return s.take(charges)
		}},
	"does not let the clock step back": {found: "Clock/back_behind_all_units Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			now := s.now
			s.last = max(s.last, now)
			s.now = s.last
			d, err := s.take(charges)
			s.now, d.At = now, now
			return d, err
		}},
	"remembers only what it admitted": {found: "Clock/back,_noticed_by_the_refusal_of_another_rule Schedules",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			clear(s.states)
			for _, m := range s.past {
				core.Decide(m.at, m.charges, s.statesOf(m.charges))
			}
			d, err := s.take(charges)
			if d.Allowed && slices.ContainsFunc(charges, func(c core.Charge) bool { return c.Cost > 0 }) {
				s.past = append(s.past, moment{s.now, slices.Clone(charges)})
			}
			return d, err
		}},
	"forgets that a bucket has begun": {found: "Schedules",
		forgets: func(q core.Quota) int64 { return min(q.Missing, 1) * hour }},
	"forgets a microsecond too early": {found: "Schedules", forgets: func(core.Quota) int64 { return 1 }},
	"looks, and takes later": {found: "Concurrent/one_key Concurrent/rules_in_any_order",
		take: func(s *reference, charges []core.Charge) (core.Decision, error) {
			looks := slices.Clone(charges)
			for i := range looks {
				looks[i].Cost = 0
			}
			d, err := s.take(looks)
			for i, o := range d.Outcomes() {
				d.Allowed = d.Allowed && o.Remaining >= charges[i].Cost
			}
			s.mu.Unlock()
			time.Sleep(time.Millisecond) // for all others to look meanwhile
			s.mu.Lock()
			if d.Allowed {
				for i, state := range s.statesOf(charges) {
					state.Take(charges[i].Cost, charges[i].ID)
				}
			}
			return d, err
		}},
}

// altered is a fault that decides other charges than those asked for.
func altered(alter func(*core.Charge)) func(*reference, []core.Charge) (core.Decision, error) {
	return func(s *reference, charges []core.Charge) (core.Decision, error) {
		others := slices.Clone(charges)
		for i := range others {
			alter(&others[i])
		}
		return s.take(others)
	}
}
