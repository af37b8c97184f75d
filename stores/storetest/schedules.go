package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/routelimit/limit/core"
)

// Schedules draws n random schedules and compares each decision of the store with
// the functions of package core. Decisions of an exact window are also compared
// with its definition: see [ledger]. Rules of all algorithms are mixed. Schedules
// do not share keys, so one store serves them all. A seed always draws the same
// schedules.
func Schedules(t *testing.T, h Harness, seed uint64, n int) {
	t.Helper()
	decisions, refused, asked, given := 0, 0, 0, 0
	for i := environment(t, "LIMIT_FIRST", 0); i < n; i++ {
		s := newSchedule(t, h, seed, i)
		s.run()
		decisions += len(s.trace)
		refused += s.refused
		asked, given = asked+s.asked, given+s.given
	}
	t.Logf("seed %d: %d schedules, %d decisions, %d of them refused; %d asked to give back, %d gave some",
		seed, n, decisions, refused, asked, given)
}

// A schedule is a policy of one to five rules with a few keys each, charged at
// random times. Every second one has a single rule.
type schedule struct {
	t      *testing.T
	h      Harness
	random *rand.Rand
	policy string
	rules  []core.Charge // rules and their quotas
	keys   int

	apart     bool // whether the rules of a decision are in several places: see [Harness].Spreads
	stepsBack bool // whether the clock may step back
	changes   bool // whether limits may change
	plans     bool // whether callers of one key have different limits
	forgets   bool // whether the store may forget keys that are as good as new, at any time
	expires   bool // whether keys expire, with long times in which nothing happens
	returns   bool // whether units are given back, and keys reset

	now     int64
	retry   int64               // of the last refusal
	met     core.Outcome        // one of the last decision
	states  map[name]core.State // by quota, as are those below
	ledgers map[name]*ledger    // of exact windows
	usual   []core.Quota        // of rules with plans
	left    map[name]int64      // what remained
	loans   [][]core.Return     // what admitted requests took
	trace   []step
	refused int
	leases  []core.Charge // what was taken under each id, and may still be held
	ids     uint64        // as many as were given out

	asked, given int // returns
}

// A name names a quota.
type name struct{ policy, rule, variant, key string }

func nameOf(c core.Charge) name { return name{c.Policy, c.Rule, c.Variant, c.Key} }

// A step is a decision that was made, or something else that was done.
type step struct {
	at      int64
	charges []core.Charge
	core.Decision
	other string
}

var (
	someLimits  = []int64{1, 2, 3, 5, 8, 100, 127, 128, 129, 130, 200}
	someWindows = []int64{ms, 10 * ms, sec, 1_900 * ms, 2 * sec, hour, 72 * 60 * sec, day}
)

func newSchedule(t *testing.T, h Harness, seed uint64, number int) *schedule {
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	s := &schedule{
		t: t, h: h, random: random,
		policy:    fmt.Sprintf("schedule %d of seed %d", number, seed),
		keys:      1 + random.IntN(3),
		stepsBack: random.IntN(2) == 0,
		changes:   random.IntN(2) == 0,
		returns:   random.IntN(2) == 0,
		forgets:   h.Elapse != nil,
		expires:   h.Elapse != nil && random.IntN(2) == 0,
		now:       starts[random.IntN(len(starts))],
		states:    make(map[name]core.State),
		ledgers:   make(map[name]*ledger),
		left:      make(map[name]int64),
	}
	if s.expires {
		// A store cannot know by which quota a key that it has forgotten would
		// refill today, nor what had been given back to it before the clock
		// stepped back to then.
		s.changes = false
		s.stepsBack = s.stepsBack && !s.returns
	}
	s.plans = s.changes && random.IntN(3) == 0
	if number%2 == 1 { // one rule, of each algorithm in turn
		turn := core.Algorithms()[number/2%len(core.Algorithms())]
		s.rules = []core.Charge{s.rule(0, turn)}
		return s
	}
	for i := range 1 + random.IntN(5) {
		s.rules = append(s.rules, s.rule(i, someAlgorithm(random)))
	}
	if h.Spreads {
		s.spread()
	}
	return s
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

func (s *schedule) run() {
	if s.expires {
		s.h.SetTime(s.now)
		s.h.Elapse(2 * core.MaxFill) // and with it what other schedules have left
	}
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
			s.giveBack()
		}
		if s.random.IntN(8) == 0 {
			s.owe()
			continue
		}
		charges := s.draw()
		if s.random.IntN(3) == 0 {
			s.takeAll(s.several(charges))
			continue
		}
		d := s.take(charges)
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
	for id, l := range s.ledgers {
		if at := l.excess(); at != 0 && !s.stepsBack && !s.changes && !(l.owed && s.returns) {
			s.fail("%v: more than %d in the window that begins at %d", id, l.quota.Limit, at)
		}
	}
}

// take makes one decision and compares it with the models.
func (s *schedule) take(charges []core.Charge) core.Decision {
	return s.takeAll([][]core.Charge{charges})[0].Decision
}

// takeAll makes a call and compares its decisions with the models.
func (s *schedule) takeAll(list [][]core.Charge) []core.Ask {
	asks := make([]core.Ask, len(list))
	for i, charges := range list {
		asks[i].Charges = slices.Clone(charges)
		s.name(asks[i].Charges)
	}
	s.h.SetTime(s.now)
	if err := s.h.Store.Take(s.t.Context(), asks); err != nil {
		s.fail("at %d, %+v: %v", s.now, asks, err)
	}
	for i := range asks {
		s.trace = append(s.trace, step{at: s.now, charges: asks[i].Charges, Decision: asks[i].Decision})
	}
	for i := range asks {
		s.compare(i, asks[i].Charges, asks[i].Decision)
	}
	return asks
}

// compare compares a decision, the i-th of a call, with the models.
func (s *schedule) compare(i int, charges []core.Charge, got core.Decision) {
	if !got.Allowed {
		s.refused++
	}
	states := make([]core.State, len(charges))
	for i, c := range charges {
		states[i] = s.stateOf(c)
	}
	want := core.Decide(s.now, charges, states)
	if got.Allowed != want.Allowed || got.At != want.At || got.Delay != want.Delay || got.Forgiven != want.Forgiven || !slices.Equal(got.Outcomes(), want.Outcomes()) {
		s.trace = append(s.trace, step{at: s.now, charges: charges, Decision: want})
		s.fail("the last line is what package core decides, of ask %d", i)
	}
	for i, c := range charges {
		s.left[nameOf(c)] = got.Outcomes()[i].Remaining
	}
	if loan := loanOf(charges, got); len(loan) > 0 {
		s.loans = append(s.loans, loan)
	}
	s.met = pick(s.random, got.Outcomes())
	s.keep(charges, got)
	s.check(charges, got)
}

// stateOf returns the state of a charge in the model.
func (s *schedule) stateOf(c core.Charge) core.State {
	id := nameOf(c)
	if s.states[id] == nil {
		s.states[id] = core.NewState(c.Quota.Algorithm)
		if c.Quota.Algorithm == core.SlidingLog {
			s.ledgers[id] = &ledger{quota: c.Quota}
		}
	}
	return s.states[id]
}

// check compares a decision with the definition of exact windows.
func (s *schedule) check(charges []core.Charge, got core.Decision) {
	for i, c := range charges {
		l := s.ledgers[nameOf(c)]
		if l == nil {
			continue
		}
		if c.Debt {
			l.owe(c, s.now)
		} else if fits := l.fits(c, s.now); got.Outcomes()[i].Fits() != fits || got.Allowed && !fits {
			s.fail("by definition, %s fits is %v", describe(c), fits)
		}
		if got.Allowed && !c.Debt {
			l.take(c, s.now)
		}
		if left, want := got.Outcomes()[i].Remaining, max(0, c.Quota.Limit-l.live(c.Quota.Window, s.now)); left != want {
			s.fail("by definition, %d remain of %s", want, describe(c))
		}
	}
}

func (s *schedule) fail(format string, args ...any) {
	s.t.Helper()
	var trace strings.Builder
	for _, step := range s.trace {
		if step.other != "" {
			fmt.Fprintf(&trace, "%d: %s\n", step.at, step.other)
			continue
		}
		fmt.Fprintf(&trace, "%d: allowed=%v delay=%d\n", step.at, step.Allowed, step.Delay)
		for i, o := range step.Outcomes() {
			fmt.Fprintf(&trace, "\t%s: %s\n", describe(step.charges[i]), outcome(o))
		}
	}
	s.t.Fatalf("%s:\n%s%s", s.policy, trace.String(), fmt.Sprintf(format, args...))
}
