package storetest

import (
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// Schedules draws n random schedules and compares each decision of the store with the
// functions of package core. Rules of all algorithms are mixed. A seed always draws the same
// schedules.
func Schedules(t *testing.T, h Harness, seed uint64, n int) {
	t.Helper()
	var all mirror
	for i := environment(t, "LIMIT_FIRST", 0); i < n; i++ {
		s := newSchedule(t, h, seed, i)
		s.run()
		all.taken, all.refused, all.asked, all.given = all.taken+s.taken, all.refused+s.refused, all.asked+s.asked, all.given+s.given
	}
	t.Logf("seed %d: %d schedules, %d decisions, %d of them refused; %d asked to give back, %d gave some",
		seed, n, all.taken, all.refused, all.asked, all.given)
}

// A schedule is a policy of one to five rules with a few keys each, charged at
// random times. Every second one has a single rule.
type schedule struct {
	*mirror
	rules []core.Charge // rules and their quotas
	usual []core.Quota  // of rules with plans
	keys  int
	retry int64  // of the last refusal
	ids   uint64 // as many as were given out

	apart     bool // whether the rules of a decision are in several places: see [Harness].Spreads
	stepsBack bool // whether the clock may step back
	changes   bool // whether limits may change
	plans     bool // whether callers of one key have different limits
	returns   bool // whether units are given back, and keys reset
}

var (
	someLimits  = []int64{1, 2, 3, 5, 8, 100, 127, 128, 129, 130, 200}
	someWindows = []int64{ms, 10 * ms, sec, 1_900 * ms, 2 * sec, hour, 72 * 60 * sec, day}
)

func newSchedule(t *testing.T, h Harness, seed uint64, number int) *schedule {
	m := newMirror(t, h, "schedule", seed, number)
	m.expires = h.Elapse != nil && m.random.IntN(2) == 0 // and there are long times in which nothing happens
	s := &schedule{mirror: m, keys: 1 + m.random.IntN(3), stepsBack: m.random.IntN(2) == 0, changes: m.random.IntN(2) == 0, returns: m.random.IntN(2) == 0}
	if s.expires {
		// A store cannot know by which quota a key that it has forgotten would
		// refill today, nor what had been given back to it before the clock
		// stepped back to then.
		s.changes = false
		s.stepsBack = s.stepsBack && !s.returns
	}
	s.plans = s.changes && s.random.IntN(3) == 0
	if number%2 == 1 { // one rule, of each algorithm in turn
		turn := core.Algorithms()[number/2%len(core.Algorithms())]
		s.rules = []core.Charge{s.rule(0, turn)}
		return s
	}
	for i := range 1 + s.random.IntN(5) {
		s.rules = append(s.rules, s.rule(i, someAlgorithm(s.random)))
	}
	if h.Spreads {
		s.spread()
	}
	return s
}

func (s *schedule) run() {
	s.begin()
	for range 20 + s.random.IntN(40) {
		s.advance()
		if s.changes && s.random.IntN(10) == 0 {
			s.change()
		}
		if s.plans {
			s.alternate()
		}
		s.touch()
		if s.returns && s.random.IntN(3) == 0 {
			s.giveSomeBack()
		}
		if s.random.IntN(8) == 0 {
			s.owe()
			continue
		}
		charges := s.draw()
		if s.random.IntN(3) == 0 {
			s.takeAll(s.several(charges)...)
			continue
		}
		d := s.take(charges...)
		if d.Allowed {
			continue
		}
		s.retry = d.RetryAfter()
		switch s.random.IntN(6) {
		case 0:
			s.lookAgain(charges, d)
		case 1:
			s.tryAgain(charges, d)
		case 2:
			s.takeTurns(charges, d)
		}
	}
}

func (s *schedule) take(charges ...core.Charge) core.Decision {
	s.Helper()
	return s.takeAll(charges)[0].Decision
}

// takeAll gives an id to each charge that takes a lease, mostly a new one, and makes decisions.
func (s *schedule) takeAll(list ...[]core.Charge) []core.Ask {
	s.Helper()
	named := make([][]core.Charge, len(list))
	for i := range list {
		named[i] = slices.Clone(list[i])
		for j := range named[i] {
			c := &named[i][j]
			switch {
			case !c.Quota.Leases() || c.Cost == 0 || c.ID != 0:
			case s.random.IntN(20) == 0 && len(s.leases) > 0 && !s.apart:
				c.ID = pick(s.random, s.leases).ID
			default:
				s.ids++
				c.ID = s.ids * allBits
			}
		}
	}
	return s.mirror.takeAll(named...)
}

// lookAgain looks at what was refused, and must find it untouched but for strikes,
// which the refusal shows already.
func (s *schedule) lookAgain(charges []core.Charge, refused core.Decision) {
	looks := slices.Clone(charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	d := s.take(looks...)
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
			later := s.stateOf(c).Clone()
			fewer = fewer || !c.Fits(later.Advance(&c.Quota, s.now+retry))
		}
	}
	s.pass(retry - 1)
	if s.take(charges...).Allowed {
		s.fail("admitted before RetryAfter")
	}
	s.pass(1)
	if !s.take(charges...).Allowed && !fewer {
		s.fail("refused after RetryAfter")
	}
}

// takeTurns charges other keys of the rules that refused, together with the same
// keys of the rules that did not, and then asks again. The answer to that must not
// be older than what was taken meanwhile.
func (s *schedule) takeTurns(charges []core.Charge, refused core.Decision) {
	others := slices.Clone(charges)
	for i, o := range refused.Outcomes() {
		if !o.Fits() {
			others[i].Key = s.key()
		}
	}
	for range 1 + s.random.IntN(3) {
		s.take(others...)
		s.pass(s.random.Int64N(2) * s.random.Int64N(1+max(0, refused.RetryAfter())))
		s.take(charges...)
	}
}

// giveSomeBack gives back what an admission took: all or a part, at once or late, some
// of it twice. Sometimes it resets a key instead.
func (s *schedule) giveSomeBack() {
	if s.random.IntN(20) == 0 {
		c := pick(s.random, s.rules)
		c.Key = s.key()
		s.reset(c)
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
		case 3:
			s.update(&r.Charge)
		}
	}
	s.giveBack(list...)
}

// update gives c the current quota of its rule.
func (s *schedule) update(c *core.Charge) {
	for _, rule := range s.rules {
		if rule.SameState(c) {
			c.Quota = rule.Quota
		}
	}
}

// touch renews or releases leases. Some are held, some have ended, some are of another key
// or were never taken.
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
		s.update(&c)
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
			s.renew(charges...)
		} else {
			s.release(charges...)
		}
	}
	for _, c := range charges { // what is left is compared
		c.Cost = 0
		s.take(c)
	}
}
