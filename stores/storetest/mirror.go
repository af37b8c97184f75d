package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/routelimit/limit/core"
)

// A mirror makes each call on a store and on a model, and compares what both say. The model
// is package core: a state for each quota. A fault of package core would not show here; its
// own tests compare it with plain definitions, and [Versions] counts what a store admits.
type mirror struct {
	*testing.T
	Harness
	random *rand.Rand
	policy string

	now     int64
	expires bool // whether keys expire
	states  map[name]core.State
	last    core.Decision

	loans  [][]core.Return // what admitted requests took
	leases []core.Charge   // what was taken under each id, and may still be held

	trace          []func() string
	taken, refused int // decisions
	asked, given   int // returns
}

// A name names a quota.
type name struct{ policy, rule, variant, key string }

func nameOf(c core.Charge) name { return name{c.Policy, c.Rule, c.Variant, c.Key} }

// newMirror returns the mirror of a random schedule. Schedules do not share policies, so one
// store serves them all.
func newMirror(t *testing.T, h Harness, what string, seed uint64, number int) *mirror {
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	return &mirror{T: t, Harness: h, random: random, policy: fmt.Sprintf("%s %d of seed %d", what, number, seed),
		now: pick(random, starts), states: make(map[name]core.State)}
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// begin sets the clock, and has expire what other schedules have left.
func (m *mirror) begin() {
	m.SetTime(m.now)
	if m.expires {
		m.Elapse(2 * core.MaxFill)
	}
}

// pass moves the clock.
func (m *mirror) pass(micros int64) {
	m.now += micros
	m.SetTime(m.now)
	if m.expires {
		m.Elapse(micros)
	}
}

// stateOf returns the state of a charge's key in the model.
func (m *mirror) stateOf(c core.Charge) core.State {
	id := nameOf(c)
	if m.states[id] == nil {
		m.states[id] = core.NewState(c.Quota.Algorithm)
	}
	return m.states[id]
}

func (m *mirror) statesOf(charges []core.Charge) []core.State {
	states := make([]core.State, len(charges))
	for i, c := range charges {
		states[i] = m.stateOf(c)
	}
	return states
}

// room returns how much of a charge's quota is left.
func (m *mirror) room(c core.Charge) int64 { return m.stateOf(c).Clone().Advance(&c.Quota, m.now) }

// comesBack returns how long until some of the units that a charge's key lacks come back.
func (m *mirror) comesBack(c core.Charge) int64 {
	probe := m.stateOf(c).Clone()
	probe.Advance(&c.Quota, m.now)
	if used := probe.Used(); used > 0 {
		return probe.After(1 + m.random.Int64N(used))
	}
	return 0
}

// take makes one decision.
func (m *mirror) take(charges ...core.Charge) core.Decision {
	m.Helper()
	return m.takeAll(charges)[0].Decision
}

// takeAll makes decisions in one call.
func (m *mirror) takeAll(list ...[]core.Charge) []core.Ask {
	m.Helper()
	asks := make([]core.Ask, len(list))
	for i, charges := range list {
		asks[i].Charges = slices.Clone(charges)
	}
	if err := m.Store.Take(m.Context(), asks); err != nil {
		m.fail("%+v: %v", asks, err)
	}
	for i := range asks {
		m.logDecision(&asks[i])
	}
	for i := range asks {
		m.compare(i, &asks[i])
	}
	return asks
}

// compare compares a decision, the i-th of a call, with that of package core.
func (m *mirror) compare(i int, ask *core.Ask) {
	m.Helper()
	got, want := &ask.Decision, core.Decide(m.now, ask.Charges, m.statesOf(ask.Charges))
	if got.Allowed != want.Allowed || got.At != want.At || got.Delay != want.Delay || got.Forgiven != want.Forgiven || !slices.Equal(got.Outcomes(), want.Outcomes()) {
		m.logDecision(&core.Ask{Charges: ask.Charges, Decision: want})
		m.fail("the last line is what package core decides, of ask %d", i)
	}
	m.last = *got
	m.taken++
	if !got.Allowed {
		m.refused++
		return
	}
	var loan []core.Return
	for i, c := range ask.Charges {
		switch {
		case c.Quota.Leases() && c.ID != 0:
			m.leases = append(m.leases, c)
		case !c.Quota.Leases() && !c.Debt:
			loan = append(loan, got.Return(i, c))
		}
	}
	if loan != nil {
		m.loans = append(m.loans, loan)
	}
}

// giveBack gives units back.
func (m *mirror) giveBack(list ...core.Return) []core.Returned {
	m.Helper()
	got, err := m.Store.Return(m.Context(), list)
	want := make([]core.Returned, len(list))
	for i := range list {
		want[i].Units = m.stateOf(list[i].Charge).Return(&list[i], m.now)
	}
	for i := range list { // then all are looked at
		want[i].Outcome = core.Look(m.now, list[i].Charge, m.stateOf(list[i].Charge))
	}
	m.log("gave back %+v of %+v", got, list)
	if err != nil || !slices.Equal(got, want) {
		m.fail("%v; package core gives back %+v", err, want)
	}
	for _, r := range got {
		m.given += int(min(r.Units, 1))
	}
	m.asked += len(list)
	return got
}

func (m *mirror) renew(charges ...core.Charge) {
	m.Helper()
	held, err := m.Store.Renew(m.Context(), charges)
	want := make([]bool, len(charges))
	for i, c := range charges {
		want[i] = m.stateOf(c).Renew(&c.Quota, m.now, c.ID)
	}
	m.log("renewed %+v: held %v", charges, held)
	if err != nil || !slices.Equal(held, want) {
		m.fail("%v; package core holds %v", err, want)
	}
}

func (m *mirror) release(charges ...core.Charge) {
	m.Helper()
	err := m.Store.Release(m.Context(), charges)
	for _, c := range charges {
		m.stateOf(c).Release(&c.Quota, m.now, c.ID)
	}
	if m.log("released %+v", charges); err != nil {
		m.fail("%v", err)
	}
}

// reset resets a key, which must then be as new.
func (m *mirror) reset(c core.Charge) {
	m.Helper()
	err := m.Store.Reset(m.Context(), []core.Charge{{Policy: c.Policy, Rule: c.Rule, Variant: c.Variant, Key: c.Key}})
	delete(m.states, nameOf(c))
	if m.log("reset %s", describe(c)); err != nil {
		m.fail("%v", err)
	}
}

// log adds a line to what is shown after a failure.
func (m *mirror) log(format string, args ...any) {
	now := m.now
	m.trace = append(m.trace, func() string { return fmt.Sprintf("%d: "+format, append([]any{now}, args...)...) })
}

func (m *mirror) logDecision(ask *core.Ask) {
	now := m.now
	m.trace = append(m.trace, func() string {
		d, text := &ask.Decision, new(strings.Builder)
		fmt.Fprintf(text, "%d: allowed=%v delay=%d forgiven=%d", now, d.Allowed, d.Delay, d.Forgiven)
		for i, o := range d.Outcomes() {
			fmt.Fprintf(text, "\n\t%s: %s", describe(ask.Charges[i]), outcome(o))
		}
		return text.String()
	})
}

func (m *mirror) fail(format string, args ...any) {
	m.Helper()
	var trace strings.Builder
	for _, line := range m.trace {
		trace.WriteString(line() + "\n")
	}
	m.Fatalf("%s:\n%s%s", m.policy, trace.String(), fmt.Sprintf(format, args...))
}
