package storetest

import (
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// A Kind is what the versions of a rule have in common in [Lives].
type Kind int

// The kinds of versions.
const (
	Times   Kind = iota // of an algorithm that lists times; keys expire
	Levels              // of a bucket or a queue
	Periods             // of an algorithm that counts in periods: their kinds, cells and zones differ too
	Tallies             // of several algorithms
)

var kinds = [...]struct {
	name       string
	algorithms []core.Algorithm // of all versions of a life one, or of each version any if there are none
	quota      func(l *life, a core.Algorithm) core.Quota
	expires    int  // keys expire in so many of two lives, if they can
	forgets    bool // whether the store may forget what a key has when it is as good as new
}{
	Times: {"times", []core.Algorithm{core.SlidingLog, core.SlidingLog, core.Distinct, core.Ban, core.Concurrency}, func(l *life, a core.Algorithm) core.Quota {
		q := plainQuota(a, pick(l.random, []int64{1, 2, 3, 5, 8, 30, 100, 127, 128, 129, 200, 300}),
			pick(l.random, []int64{ms, 1_500, 10 * ms, sec, 10 * sec, 1<<32 - 1, 1 << 32, 72 * 60 * sec, day}))
		if q.Bars() {
			q.Bar = pick(l.random, someWindows)
			q.MaxBar = pick(l.random, []int64{0, q.Bar, 3 * q.Bar})
		}
		return q
	}, 2, true},
	Levels: {"levels", []core.Algorithm{core.TokenBucket, core.LeakyBucket, core.Queue}, func(l *life, a core.Algorithm) core.Quota {
		q := core.Quota{Algorithm: a, Limit: 1 + l.random.Int64N(20), Window: pick(l.random, []int64{1_000, 1_009, sec, 7 * sec}), Burst: 1 + l.random.Int64N(30)}
		if len(l.versions) > 0 && l.random.IntN(2) == 0 {
			q.Limit, q.Window = l.versions[0].Limit, l.versions[0].Window
		}
		return q
	}, 0, false},
	Periods: {"periods", []core.Algorithm{core.FixedWindow, core.SlidingCells, core.SlidingCounter}, func(l *life, a core.Algorithm) core.Quota {
		q := someQuota(l.T, l.random, a)
		if len(l.versions) > 0 && q.Calendar.Unit == 0 && l.random.IntN(3) == 0 { // a little longer or shorter
			q.Window = min(core.MaxWindow, max(core.MinWindow, l.versions[0].Window*(1+l.random.Int64N(12))/4))
		}
		return q
	}, 1, true},
	Tallies: {"tallies", nil, func(l *life, a core.Algorithm) core.Quota {
		limit := 1 + l.random.Int64N(20)
		if l.random.IntN(2) == 0 {
			limit = pick(l.random, []int64{128, 129, 200, 1000, 1_000_003})
		}
		if a.MaxLimit() < core.MaxLimit { // or a life takes long
			limit = min(limit, 1000)
		}
		return ofAlgorithm(l.random, a, limit, pick(l.random, []int64{sec, 10 * sec, 60 * sec}))
	}, 0, false},
}

// Lives has two to seven random versions of a rule charge one key in any order, in n lives of a
// kind from the first on. They look, owe, give back, renew, release and reset, and the clock
// steps back. All that the store answers is compared with package core.
func Lives(t *testing.T, h Harness, kind Kind, first, n int) {
	t.Helper()
	k := &kinds[kind]
	seed := uint64(environment(t, "LIMIT_SEED", 31))
	for number := first; number < first+environment(t, "LIMIT_SCHEDULES", n); number++ {
		l := &life{mirror: newMirror(t, h, k.name, seed, number), number: number, forgets: k.forgets, mixed: k.algorithms == nil}
		l.expires = h.Elapse != nil && l.random.IntN(2) < k.expires
		l.charge = core.Charge{Policy: l.policy, Rule: "r", Key: "k"}
		of := k.algorithms
		if !l.mixed {
			of = []core.Algorithm{of[number%len(of)]}
		}
		for most := 2 + l.random.IntN(6); len(l.versions) < most; {
			a := pick(l.random, core.Algorithms())
			if !l.mixed {
				a = of[0]
			} else if len(l.versions) == 1 && a.Alike(l.versions[0].Algorithm) {
				continue
			}
			l.versions = append(l.versions, k.quota(l, a))
		}
		l.run()
	}
}

// A life is that of a key.
type life struct {
	*mirror
	number   int
	charge   core.Charge
	versions []core.Quota
	mixed    bool // whether they have several algorithms
	forgets  bool
	retry    int64
}

func (l *life) run() {
	l.begin()
	if l.mixed {
		// The first requests are of two algorithms, so that the key has tallies; before that,
		// a store and package core may differ in what they forget.
		a := l.versions[0].Algorithm
		l.states[nameOf(l.charge)] = core.NewTallies(a, core.NewState(a))
		for i := range 4 {
			c := l.charge
			c.Quota, c.Cost, c.ID = l.versions[i%2], 1, 1+l.random.Uint64N(10)
			l.take(c)
		}
	}
	for range 60 {
		c := l.charge
		c.Quota = pick(l.random, l.versions)
		l.pass(l.step(c))
		switch l.random.IntN(10) {
		case 0, 1:
			l.after(c)
		default:
			l.draw(&c)
			l.request(c)
			l.retry = max(0, l.last.RetryAfter())
		}
	}
}

// step returns by how much the clock moves.
func (l *life) step(c core.Charge) int64 {
	w, limit := c.Quota.Window, c.Quota.Limit
	if l.number%4 == 3 && !l.expires && l.random.IntN(10) == 0 {
		if l.forgets && l.stateOf(c).Expires() <= l.now {
			return 0
		}
		return max(-l.random.Int64N(1+w), starts[0]/2-l.now)
	}
	steps := []int64{0, 0, 0, 0, 1, w / limit, l.random.Int64N(1 + 2*w/limit), l.random.Int64N(1 + w/4), l.random.Int64N(w), w / 3}
	if l.forgets {
		steps = append(steps, w-1, w, l.random.Int64N(3*w), hour+2*w+l.random.Int64N(4*w))
	}
	if l.expires {
		steps = append(steps, l.retry, 40*day)
	}
	return pick(l.random, steps)
}

// draw draws what a request takes.
func (l *life) draw(c *core.Charge) {
	q := &c.Quota
	c.Cost = pick(l.random, []int64{0, 1, 1, 1, 2, 1 + l.random.Int64N(q.Capacity()), q.Capacity(), max(1, l.room(*c))})
	if l.random.IntN(8) == 0 {
		if c.Debt, c.Cost = true, max(1, c.Cost); !l.mixed {
			c.Cost = pick(l.random, []int64{c.Cost, 1 + l.random.Int64N(q.Capacity()+3), core.MaxCost})
		}
		drawMaxDebt(l.random, c)
		if l.mixed || !q.Bars() && !q.Refills() { // or a store may have forgotten what the key took since
			c.Age = pick(l.random, []int64{0, 1, l.random.Int64N(2 * q.Window), q.Window, 3 * q.Window})
		}
	}
	if q.Identified() && c.Cost > 0 {
		c.ID = 1 + l.random.Uint64N(10)
	}
}

// request takes a charge: in some lives of several algorithms beside one on another key, which
// must keep what it has, in one ask or in two of a call.
func (l *life) request(c core.Charge) {
	if !l.mixed || l.number%3 > 0 || l.random.IntN(4) == 0 {
		l.take(c)
		return
	}
	beside := core.Charge{Policy: c.Policy, Rule: "beside", Key: "k", Cost: 1 + l.random.Int64N(40), Debt: c.Debt, Quota: plainQuota(core.SlidingLog, 1000, 60*sec)}
	switch charges := []core.Charge{beside, c}; l.random.IntN(3) {
	case 0:
		l.takeAll(charges[:1], charges[1:])
	case 1:
		slices.Reverse(charges)
		l.take(charges...)
	default:
		l.take(charges...)
	}
}

// after gives back what a version may have admitted, or renews or releases it, or resets the
// key.
func (l *life) after(c core.Charge) {
	switch {
	case l.random.IntN(40) == 0 && !l.mixed:
		l.reset(c)
	case c.Quota.Leases() && len(l.leases) > 0:
		c.ID, c.Cost = pick(l.random, l.leases[max(0, len(l.leases)-8):]).ID, 1
		if l.random.IntN(2) == 0 {
			l.renew(c)
		} else {
			l.release(c)
		}
	case len(l.loans) > 0:
		loan := slices.Clone(pick(l.random, l.loans[max(0, len(l.loans)-8):]))
		if !l.mixed && l.random.IntN(4) == 0 {
			loan[0].Quota = c.Quota
		}
		l.giveBack(loan...)
	}
}
