package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// Holds draws n random schedules in which requests of up to three rules are held under a few
// ids, settled, extended and repeated, while holds end and are forgotten. All that the store,
// which must be a [core.Holder], decides and settles is compared with package core.
func Holds(t *testing.T, h Harness, seed uint64, n int) {
	t.Helper()
	holder := h.Store.(core.Holder)
	for i := range n {
		s := &heldSchedule{mirror: newMirror(t, h, "holds", seed, i), holder: holder, holds: make(map[name]map[core.HoldID]*heldUnits)}
		s.expires = h.Elapse != nil && s.random.IntN(2) == 0
		for r := range 1 + s.random.IntN(3) {
			a := pick(s.random, []core.Algorithm{core.SlidingLog, core.FixedWindow, core.SlidingCells, core.SlidingCounter, core.TokenBucket, core.LeakyBucket})
			c := core.Charge{Policy: s.policy, Rule: fmt.Sprint("rule ", r), Quota: someQuota(t, s.random, a)}
			drawMaxDebt(s.random, &c)
			if s.random.IntN(4) == 0 { // another kind of rule stands beside, and is not held
				a := pick(s.random, []core.Algorithm{core.Queue, core.Concurrency, core.Distinct, core.Ban})
				c.Quota, c.MaxDebt = plainQuota(a, 1+s.random.Int64N(4), pick(s.random, []int64{sec, 100 * sec})), 0
			}
			s.rules, s.kept = append(s.rules, c), s.kept|uint16(s.random.IntN(4)/3<<r)
		}
		s.run()
	}
}

type heldSchedule struct {
	*mirror
	holder core.Holder
	rules  []core.Charge
	kept   uint16
	shares bool // whether keys share a quota, of which nothing is held: the schedule ends
	holds  map[name]map[core.HoldID]*heldUnits
}

type heldUnits struct {
	found       core.Found
	until       int64
	full        int64 // when the quota would have been full again
	units, kept int64
	taken       core.Return
}

func (s *heldSchedule) run() {
	s.begin()
	for step := 0; step < 30 && !s.shares; step++ {
		s.pass(pick(s.random, []int64{0, 1, 1_000, 300_000, 1_000_000, 5_000_000, 60_000_000, core.HoldMemory}))
		s.forget()
		switch id := core.HoldIDOf(fmt.Sprint(s.random.IntN(4))); s.random.IntN(8) {
		case 0, 1, 2:
			s.hold(s.charges(), id)
		case 3, 4:
			s.settle(s.charges(), id)
		case 5:
			s.extend(s.charges(), id)
		case 6:
			s.take(s.charges())
		default:
			c := s.charges()[0]
			delete(s.holds, nameOf(c))
			s.reset(c)
		}
		if step%4 == 0 && !s.shares {
			s.account()
		}
	}
	s.take(s.charges())
}

// forget has the model forget the holds of a key that the store has forgotten, as it may once
// nothing that they took counts any more.
func (s *heldSchedule) forget() {
	for of, holds := range s.holds {
		ended, last := 0, int64(0)
		for _, u := range holds {
			if last = max(last, u.until); u.found == core.HoldLives {
				ended, last = ended+1, max(last, u.until+core.HoldMemory, u.full)
			}
		}
		if !s.expires || ended == 0 || last > s.now {
			continue
		}
		rule := slices.IndexFunc(s.rules, func(c core.Charge) bool { return c.Rule == of.rule })
		c := s.rules[rule]
		c.Key = of.key
		got, err := core.AccountOf(s.Context(), s.Store, c)
		require.NoError(s, err)
		if got.Ended == 0 {
			s.log("%s/%s is forgotten", of.rule, of.key)
			delete(s.holds, of)
		}
	}
}

// charges draws what a request costs.
func (s *heldSchedule) charges() []core.Charge {
	list := slices.Clone(s.rules)
	for i := range list {
		list[i].Key = fmt.Sprint("k", s.random.IntN(2))
		most := list[i].Quota.Capacity()
		list[i].Cost = pick(s.random, []int64{0, 1, 1, 1, 2, 3, max(1, most/2), most})
		if list[i].Quota.Identified() {
			list[i].ID = 1 + s.random.Uint64N(10)
		}
	}
	return list
}

// of returns the hold on the key of a charge that the store still remembers.
func (s *heldSchedule) of(c *core.Charge, id core.HoldID) *heldUnits {
	u := s.holds[nameOf(*c)][id]
	if u == nil || u.found != core.HoldLives && u.until <= s.now {
		return nil
	}
	return u
}

// take makes a decision, which is compared unless keys share a quota.
func (s *heldSchedule) take(charges []core.Charge) {
	asks := []core.Ask{{Charges: charges}}
	require.NoError(s, s.Store.Take(s.Context(), asks))
	s.logDecision(&asks[0])
	if s.shares = shares(&asks[0].Decision); !s.shares {
		s.compare(0, &asks[0])
	}
}

// shares reports whether an overflow quota took part in a decision.
func shares(d *core.Decision) bool {
	for i := range d.Outcomes() {
		if d.Overflow(i) != core.OwnQuota {
			return true
		}
	}
	return false
}

func (s *heldSchedule) hold(charges []core.Charge, id core.HoldID) {
	ask := core.Ask{Charges: charges}
	h := core.Hold{ID: id, Life: pick(s.random, []int64{core.MinHold, 2_000_000, 60_000_000}), Kept: s.kept}
	s.log("hold %x for %d of %v", id[:2], h.Life, charges)
	require.NoError(s, s.holder.Hold(s.Context(), &ask, &h))
	found := core.HoldUnknown
	var units [core.MaxCharges]int64
	free := slices.Clone(charges)
	for i := range charges {
		c := &charges[i]
		if !c.Quota.Holds() { // it decides each repeat
			continue
		}
		free[i].Cost = 0
		u := s.of(c, id)
		if u != nil && u.found == core.HoldLives && u.until <= s.now {
			s.end(&core.Settlement{Return: core.Return{Charge: *c}, Hold: id, Ends: true})
			u = nil
		}
		if u != nil && u.found != core.HoldEnded {
			units[i] = u.units
			found = max(found, u.found)
		}
	}
	if s.shares = shares(&ask.Decision); s.shares {
		s.same(ask.Decision.Allowed && found == core.HoldUnknown, h.Found == core.HoldRefused, "refused to hold")
		return
	}
	s.same(found, h.Found, "what was found")
	if found == core.HoldSettled {
		return
	}
	if found == core.HoldLives {
		s.same(units, h.Units, "units")
	} else {
		free = charges
	}
	for i := range charges {
		of := nameOf(charges[i])
		listed := slices.ContainsFunc(h.Over, func(o core.Settlement) bool { return nameOf(o.Charge) == of })
		for other, u := range s.holds[of] {
			if charges[i].Quota.Holds() && u.found == core.HoldLives && u.until <= s.now && !listed {
				s.fail("the hold %x on %s is over, and none was listed", other[:2], of.key)
			}
		}
	}
	d := ask.Decision
	s.compare(0, &core.Ask{Charges: free, Decision: d})
	for i := range charges {
		c := &charges[i]
		if found == core.HoldUnknown && d.Allowed && c.Cost > 0 && c.Quota.Holds() {
			u := &heldUnits{found: core.HoldLives, until: s.now + h.Life, full: s.now + d.Outcomes()[i].ResetAfter, units: c.Cost, kept: c.Cost * int64(s.kept>>i&1), taken: d.Return(i, *c)}
			if s.holds[nameOf(*c)] == nil {
				s.holds[nameOf(*c)] = make(map[core.HoldID]*heldUnits)
			}
			s.holds[nameOf(*c)][id] = u
		}
	}
	for i := range h.Over {
		u := s.of(&h.Over[i].Charge, h.Over[i].Hold)
		if u == nil || u.found != core.HoldLives || u.until > s.now {
			s.fail("the hold %x on %s is not over", h.Over[i].Hold[:2], h.Over[i].Key)
		}
	}
	if len(h.Over) > 0 && s.random.IntN(3) > 0 {
		for some := range slices.Chunk(h.Over, core.MaxCharges) {
			s.settled(some)
		}
	}
}

func (s *heldSchedule) settle(charges []core.Charge, id core.HoldID) {
	var list []core.Settlement
	ends, forget := s.random.IntN(4) == 0, s.random.IntN(4) == 0
	for i := range charges {
		if charges[i].Quota.Holds() {
			of := core.Settlement{Return: core.Return{Charge: charges[i]}, Hold: id, Used: charges[i].Cost, Ends: ends, Forget: forget}
			of.Cost = s.random.Int64N(3)
			if u := s.of(&charges[i], id); u != nil && s.random.IntN(2) == 0 { // the one that took it
				of.Return = u.taken
				of.Charge.MaxDebt = charges[i].MaxDebt
				if of.Used == 0 && !ends && s.random.IntN(3) == 0 { // or one before it, which was settled at 0
					of.At--
				}
			}
			list = append(list, of)
		}
	}
	if len(list) == 0 {
		return
	}
	for _, c := range charges {
		if c.Quota.Leases() && s.random.IntN(2) == 0 { // its lease, or one that is not held
			list[len(list)-1].Leases = append(list[len(list)-1].Leases, c)
		}
	}
	s.settled(list)
	if s.random.IntN(3) == 0 { // repeated, as after a lost reply
		s.settled(list)
	}
}

func (s *heldSchedule) settled(list []core.Settlement) {
	s.log("settle %v", list)
	got, err := s.holder.Settle(s.Context(), list)
	require.NoError(s, err)
	for _, c := range core.Leased(list) {
		s.stateOf(c).Release(&c.Quota, s.now, c.ID)
	}
	for i := range list {
		s.same(s.end(&list[i]), got[i], list[i].Rule)
	}
}

// end is what a settlement must do.
func (s *heldSchedule) end(of *core.Settlement) (done core.Settled) {
	u := s.of(&of.Charge, of.Hold)
	if u == nil {
		return done
	}
	if u.found != core.HoldSettled && of.Used == 0 && !of.Ends && of.At != 0 && of.At != u.taken.At {
		return done
	}
	if done.Found = u.found; u.found == core.HoldSettled {
		return done
	}
	cost, then, state := of.Used, core.HoldSettled, s.stateOf(of.Charge)
	if of.Ends {
		if u.found == core.HoldEnded || u.until > s.now {
			done.Found = core.HoldSettled
			return done
		}
		cost, then = u.kept, core.HoldEnded
	}
	switch {
	case cost < u.units:
		r := u.taken
		r.Charge = of.Charge
		r.Cost = u.units - cost
		done.Given = state.Return(&r, s.now)
	case cost > u.units:
		c := of.Grow(cost-u.units, core.Look(s.now, of.Charge, state).Remaining)
		d := core.Decide(s.now, []core.Charge{c}, []core.State{state})
		done.Taken = c.Cost - d.Forgiven
		done.Forgiven = cost - u.units - done.Taken
	}
	if !of.Ends && (cost == 0 || of.Forget) {
		delete(s.holds[nameOf(of.Charge)], of.Hold)
		return done
	}
	u.found, u.units, u.until = then, cost, s.now+core.HoldMemory
	return done
}

// account checks what the store says of each key.
func (s *heldSchedule) account() {
	for i := range 2 * len(s.rules) {
		c := s.rules[i/2]
		c.Key = fmt.Sprint("k", i%2)
		got, err := core.AccountOf(s.Context(), s.Store, c)
		require.NoError(s, err)
		var want core.Account
		if c.Quota.Algorithm.Owes() {
			want.Owed = max(0, -s.stateOf(c).Clone().Advance(&c.Quota, s.now))
		}
		for _, u := range s.holds[nameOf(c)] {
			switch left := u.until - s.now; {
			case u.found != core.HoldLives:
			case left <= 0:
				want.Ended++
			default:
				if want.Next == 0 || left < want.Next {
					want.Next = left
				}
				want.Holds, want.Held = want.Holds+1, want.Held+u.units
			}
		}
		s.same(want, got, "account of "+describe(c))
	}
}

func (s *heldSchedule) extend(charges []core.Charge, id core.HoldID) {
	var list []core.Extension
	for i := range charges {
		if charges[i].Quota.Holds() {
			list = append(list, core.Extension{Charge: charges[i], Hold: id, Life: pick(s.random, []int64{core.MinHold, 30_000_000})})
		}
	}
	if len(list) == 0 {
		return
	}
	s.log("extend %x", id[:2])
	lived, err := s.holder.Extend(s.Context(), list)
	require.NoError(s, err)
	for i := range list {
		u := s.of(&list[i].Charge, id)
		lives := u != nil && u.found == core.HoldLives && u.until > s.now
		s.same(lives, lived[i], list[i].Rule)
		if lives {
			u.until = s.now + list[i].Life
		}
	}
}

func (s *heldSchedule) same(want, got any, what string) {
	s.Helper()
	if fmt.Sprint(want) != fmt.Sprint(got) {
		s.fail("%s: want %v, got %v", what, want, got)
	}
}
