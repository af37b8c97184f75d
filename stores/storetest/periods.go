package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// Periods draws n random schedules in which up to six versions of a rule that counts in
// periods charge two keys: their limits, windows, cells, kinds and zones differ. Requests,
// looks, debts, returns and resets come at random times, the clock steps back, and all that
// the store decides is compared with package core.
func Periods(t *testing.T, h Harness, seed uint64, n int) {
	t.Helper()
	for i := range n {
		p := &periods{t: t, h: h, random: rand.New(rand.NewPCG(seed, uint64(i))), policy: fmt.Sprintf("periods %d of seed %d", i, seed)}
		p.now = pick(p.random, starts)
		p.expires = h.Elapse != nil && p.random.IntN(2) == 0
		a := pick(p.random, []core.Algorithm{core.FixedWindow, core.SlidingCells, core.SlidingCounter})
		for range 1 + p.random.IntN(6) {
			q := someQuota(t, p.random, a)
			if len(p.quotas) > 0 && q.Calendar.Unit == 0 && p.random.IntN(3) == 0 { // a little longer or shorter
				q.Window = min(core.MaxWindow, max(core.MinWindow, p.quotas[0].Window*(1+p.random.Int64N(12))/4))
			}
			p.quotas = append(p.quotas, q)
		}
		p.run()
	}
}

type periods struct {
	t       *testing.T
	h       Harness
	random  *rand.Rand
	policy  string
	quotas  []core.Quota
	expires bool

	now    int64
	states [2]core.State
	loans  []core.Return
	trace  []string
}

func (p *periods) run() {
	p.h.SetTime(p.now)
	if p.h.Elapse != nil {
		p.h.Elapse(2 * core.MaxFill) // and with it what other schedules have left
	}
	for i := range p.states {
		p.states[i] = core.NewState(p.quotas[0].Algorithm)
	}
	for range 60 {
		p.step()
		key := p.random.IntN(len(p.states))
		c := core.Charge{Policy: p.policy, Rule: "r", Key: fmt.Sprint("k", key), Quota: pick(p.random, p.quotas), Cost: 1}
		switch p.random.IntN(12) {
		case 0:
			c.Cost = 0
		case 1:
			c.Cost = 1 + p.random.Int64N(c.Quota.Limit)
		case 2:
			c.Debt, c.Age = true, pick(p.random, []int64{0, 1, p.random.Int64N(2 * c.Quota.Window), 3 * c.Quota.Window})
			c.Cost = pick(p.random, []int64{1, c.Quota.Limit, core.MaxCost})
			drawMaxDebt(p.random, &c)
		case 3, 4:
			p.giveBack()
			continue
		case 5:
			if p.random.IntN(10) == 0 {
				p.states[key] = core.NewState(c.Quota.Algorithm)
				p.log("reset of %s", describe(c))
				if err := p.h.Store.Reset(p.t.Context(), []core.Charge{c}); err != nil {
					p.fail("%v", err)
				}
			}
		}
		p.take(c, p.states[key])
	}
}

func (p *periods) take(c core.Charge, state core.State) {
	got, err := core.Take(p.t.Context(), p.h.Store, []core.Charge{c})
	want := core.Decide(p.now, []core.Charge{c}, []core.State{state})
	if err != nil {
		p.fail("%s: %v", describe(c), err)
	}
	p.log("%s: allowed=%v %s", describe(c), got.Allowed, outcome(got.Outcomes()[0]))
	if got.Allowed != want.Allowed || got.At != want.At || got.Forgiven != want.Forgiven || !slices.Equal(got.Outcomes(), want.Outcomes()) {
		p.fail("package core decides allowed=%v %s", want.Allowed, outcome(want.Outcomes()[0]))
	}
	if got.Allowed && c.Cost > 0 && !c.Debt {
		p.loans = append(p.loans, got.Return(0, c))
	}
}

func (p *periods) giveBack() {
	if len(p.loans) == 0 {
		return
	}
	r := p.loans[len(p.loans)-1-p.random.IntN(min(len(p.loans), 8))]
	if p.random.IntN(4) == 0 {
		r.Quota = pick(p.random, p.quotas)
	}
	got, err := p.h.Store.Return(p.t.Context(), []core.Return{r})
	state := p.states[0]
	if r.Key != "k0" {
		state = p.states[1]
	}
	want := core.Returned{Units: state.Return(&r, p.now)}
	want.Outcome = core.Look(p.now, r.Charge, state)
	p.log("gave back %+v of %d at %d to %s", got, r.Cost, r.At, describe(r.Charge))
	if err != nil || got[0] != want {
		p.fail("%v; package core gives back %+v", err, want)
	}
}

// step moves the clock.
func (p *periods) step() {
	w := pick(p.random, p.quotas).Window
	step := int64(0)
	switch p.random.IntN(16) {
	case 0, 1, 2, 3:
	case 4:
		step = w
	case 5:
		step = p.random.Int64N(3 * w)
	case 6:
		step = hour + 2*w + p.random.Int64N(4*w)
	case 7:
		expired := func(s core.State) bool { return s.Expires() > 0 && s.Expires() <= p.now }
		if !p.expires && !slices.ContainsFunc(p.states[:], expired) { // a store may have forgotten a key by now
			step = max(-p.random.Int64N(1+w), starts[0]/2-p.now)
		}
	default:
		step = p.random.Int64N(1 + w/4)
	}
	p.now += step
	p.h.SetTime(p.now)
	if p.expires {
		p.h.Elapse(step)
	}
}

func (p *periods) log(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%d: "+format+"\n", append([]any{p.now}, args...)...))
}

func (p *periods) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s:\n%s%s", p.policy, p.trace, fmt.Sprintf(format, args...))
}
