package core

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/race"
)

// A debtor is a random life of one key, which is charged for what was used before.
type debtor struct {
	*testing.T
	random *rand.Rand
	q      Quota
	state  State
	now    int64
	used   []use
}

// A use is units and when they were used; none are a refusal.
type use struct {
	at, n int64
	id    uint64
}

func newDebtor(t *testing.T, a Algorithm, i int) *debtor {
	random := rand.New(rand.NewPCG(uint64(a)+200, uint64(i)))
	d := &debtor{T: t, random: random, q: someQuota(t, random, a), state: NewState(a)}
	if maxLimit := min(9, a.MaxLimit()); !d.q.Refills() && d.q.Limit > 1_000 {
		d.q.Limit = maxLimit // states as large as their limits take long
	}
	for d.q.Burst > d.q.Algorithm.row().minBurst && d.q.Capacity() > d.q.mostOwed()/100 {
		d.q.Burst = max(d.q.Algorithm.row().minBurst, d.q.Burst/2) // so that debts do not end where numbers do
		d.q.Missing = min(d.q.Missing, d.q.Burst)
	}
	d.now = time.Date(2025, 3, 30, 0, 58, 0, 0, time.UTC).UnixMicro() + random.Int64N(3_600_000_000)
	return d
}

func (d *debtor) step() int64 {
	each, _ := MulDiv(1, d.q.Window, d.q.Limit)
	steps := []int64{0, 1, each, each + 1, d.q.Window - 1, d.q.Window, d.random.Int64N(1 + 3*each),
		d.random.Int64N(d.q.Window), d.random.Int64N(1 + min(d.q.Span(), MaxWindow))}
	return steps[d.random.IntN(len(steps))]
}

func (d *debtor) cost() int64 {
	costs := []int64{1, 1, 1, d.q.Capacity(), 1 + d.random.Int64N(2*d.q.Capacity())}
	return costs[d.random.IntN(len(costs))]
}

// charge makes a decision, and notes what was used.
func (d *debtor) charge(cost int64, debt bool, age int64) Outcome {
	c := Charge{Quota: d.q, Cost: cost, Debt: debt, Age: age, ID: 1 + d.random.Uint64N(12)}
	decision := Decide(d.now, []Charge{c}, []State{d.state})
	if !decision.Allowed {
		cost = 0
	}
	d.used = append(d.used, use{max(0, d.now-age), cost, c.ID})
	return decision.Outcomes()[0]
}

func (d *debtor) room(at int64) int64 { return d.state.Clone().Advance(&d.q, at) }

// isNew reports whether a bucket is new again, which its definition here never is.
func (d *debtor) isNew(at int64) bool {
	bucket, ok := d.state.Clone().(*bucketState)
	if ok {
		bucket.Advance(&d.q, at)
	}
	return ok && bucket.isNew
}

// replay returns the definition of the algorithm, charged in the order of time, and
// whether it was full when something was used after a time.
func (d *debtor) replay(since int64) (p plain, full bool) {
	if p = newPlain(d.q); d.q.Algorithm == SlidingLog {
		p = &plainLog{q: d.q}
	}
	bucket, _ := p.(*plainBucket)
	if bucket != nil {
		bucket.keeps = true
	}
	list := slices.Clone(d.used)
	slices.SortStableFunc(list, func(a, b use) int { return cmp.Compare(a.at, b.at) })
	for _, u := range list {
		full = full || u.at > since && p.room(u.at) == d.q.Capacity()
		if u.n > 0 {
			p.take(u.at, u.n)
		} else if bucket != nil {
			bucket.refuse(u.at)
		}
	}
	return p, full
}

// TestDebtsAgainstDefinitions compares states with the definitions, to which all that was
// used comes in the order of time: there is never more room, and exactly as much where a
// state can tell. A window that begins with its first unit cannot: see TestDebtsInOrder.
func TestDebtsAgainstDefinitions(t *testing.T) {
	race.Skip(t)
	for _, a := range algorithmsBut() {
		if probe := (Quota{Algorithm: a}); newPlain(probe) == nil && a != SlidingLog {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			compared, exactly := 0, 0
			for i := range stories(700) {
				d := newDebtor(t, a, i)
				exact := true // so far
				for range 12 {
					d.now += d.step()
					debt, age := d.random.IntN(2) == 0, int64(0)
					if debt {
						age = min(d.step(), d.now)
					}
					_, full := d.replay(d.now - age) // before the debt
					exact = exact && !(full && d.q.Refills())
					if d.q.Missing > 0 && len(d.used) == 0 {
						exact = age <= newAgain
					} else if d.q.Missing > 0 {
						begun := slices.ContainsFunc(d.used, func(u use) bool { return u.at <= d.now-age })
						exact = exact && begun && !d.isNew(d.now)
					}
					d.charge(d.cost(), debt, age)
					if d.q.Algorithm == FixedWindow && d.q.anchored() {
						continue
					}
					p, _ := d.replay(d.now)
					d.compare(p, exact)
					compared++
					if exact {
						exactly++
					}
				}
			}
			t.Logf("%d compared, %d of them for equality", compared, exactly)
		})
	}
}

func (d *debtor) compare(p plain, exact bool) {
	each, _ := MulDiv(1, d.q.Window, d.q.Limit)
	for _, after := range []int64{0, 1, each, d.random.Int64N(d.q.Window), d.random.Int64N(1 + min(d.q.Span(), MaxWindow))} {
		at := d.now + after
		got, want := d.room(at), p.room(at)
		if d.q.Algorithm == SlidingLog {
			got, want = max(0, got), max(0, want)
		}
		if got > want || exact && got < want && !d.isNew(at) {
			d.Fatalf("at %d, after %d: %+v: room for %d, and for %d by definition: %v", d.now, after, d.q, got, want, d.used)
		}
	}
}

// TestDebtsInOrder pays a debt late, but before anything else: then it is as if it had
// been paid at once, for every algorithm. A window that begins with its first unit may
// have begun too late.
func TestDebtsInOrder(t *testing.T) {
	for _, a := range Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for i := range stories(1_000) {
				d := newDebtor(t, a, i)
				for range d.random.IntN(8) {
					d.charge(d.cost(), d.random.IntN(4) == 0, 0)
					d.now += d.step()
				}
				early, age := d.state.Clone(), d.step()
				c := Charge{Quota: d.q, Cost: d.cost(), Debt: true, ID: 1 + d.random.Uint64N(12)}
				if d.q.Leases() {
					c.ID += 20 // not held
				}
				Decide(d.now, []Charge{c}, []State{early})
				if bucket, ok := early.(*bucketState); ok && d.q.Missing > 0 && (age >= newAgain || bucket.begun != (len(d.used) > 0)) {
					continue // new again, or maybe
				}
				d.now, c.Age = d.now+age, age
				Decide(d.now, []Charge{c}, []State{d.state})
				for range 6 {
					got, want := d.room(d.now), early.Clone().Advance(&d.q, d.now)
					defined := a == SlidingLog || newPlain(d.q) != nil || d.q.Identified() || d.q.Bars()
					safe := got < want && (!defined || a == FixedWindow && d.q.anchored())
					if got != want && !safe {
						t.Fatalf("life %d, at %d, debt of %d from %d before: %+v: room for %d, and for %d had it been paid then: %v",
							i, d.now, c.Cost, age, d.q, got, want, d.used)
					}
					d.now += d.step()
				}
			}
		})
	}
}

// TestDebtsOfNow owes what there is room for: that is the same as taking it.
func TestDebtsOfNow(t *testing.T) {
	for _, a := range Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for i := range stories(700) {
				d := newDebtor(t, a, i)
				for range d.random.IntN(8) {
					d.charge(d.cost(), d.random.IntN(4) == 0, d.step())
					d.now += d.step()
				}
				room := d.room(d.now)
				if room <= 0 {
					continue
				}
				taken, c := d.state.Clone(), Charge{Quota: d.q, Cost: 1 + d.random.Int64N(room), ID: 20 + d.random.Uint64N(12)}
				want := Decide(d.now, []Charge{c}, []State{taken})
				c.Debt = true
				got := Decide(d.now, []Charge{c}, []State{d.state})
				if got.Outcomes()[0] != want.Outcomes()[0] || !want.Allowed {
					t.Fatalf("life %d: %+v, %d units: %+v\nand for a debt: %+v", i, d.q, c.Cost, want, got)
				}
				for range 4 {
					d.now += d.step()
					if got, want := d.room(d.now), taken.Advance(&d.q, d.now); got != want {
						t.Fatalf("life %d: %+v: room for %d, and for %d after a debt", i, d.q, want, got)
					}
				}
			}
		})
	}
}

// TestDebtsLeaveTruth tells that what outcomes say holds after debts: a charge that waits
// for RetryAfter fits, and none fits earlier. No debt makes room, unless a bucket
// begins with it or a bar is over since, and none is forgotten.
func TestDebtsLeaveTruth(t *testing.T) {
	for _, a := range Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for i := range stories(700) {
				d := newDebtor(t, a, i)
				for range 12 {
					d.now += d.step()
					before, debt := d.room(d.now), d.random.IntN(2) == 0
					cost, age := d.cost(), int64(0)
					if debt && d.random.IntN(4) == 0 {
						cost = []int64{MaxCost, MaxCost / 2, d.q.Limit}[d.random.IntN(3)]
					}
					if debt {
						age = []int64{0, d.step(), d.q.Span(), d.now, MaxTime}[d.random.IntN(5)]
					}
					o := d.charge(cost, debt, age)
					after := d.room(d.now)
					if debt && (!o.Fits() || after > max(before, 0) && d.q.Missing == 0 && !d.q.Bars()) {
						t.Fatalf("life %d: %+v: a debt of %d from %d before made room for %d from %d: %+v", i, d.q, cost, age, after, before, o)
					}
					if debt && age == 0 && !d.q.Identified() && after > max(0, before)-min(cost, max(0, before)) {
						t.Fatalf("life %d: %+v: a debt of %d left %d of %d", i, d.q, cost, after, before)
					}
					if o.Remaining != max(0, after) || o.ResetAfter > 2*MaxFill || min(o.RetryAfter, o.MoreAfter, o.ResetAfter) < Never {
						t.Fatalf("life %d: %+v: %+v, and there is room for %d", i, d.q, o, after)
					}
					d.truthful(i)
				}
			}
		})
	}
}

// truthful looks for room.
func (d *debtor) truthful(life int) {
	c := Charge{Quota: d.q, Cost: 1, ID: 99}
	fits := func(after int64) (Outcome, bool) {
		decision := Decide(d.now+after, []Charge{c}, []State{d.state.Clone()})
		return decision.Outcomes()[0], decision.Allowed
	}
	o, ok := fits(0)
	if ok {
		return
	}
	if _, later := fits(o.RetryAfter); !later || o.RetryAfter <= 0 {
		d.Fatalf("life %d: %+v: no room after %+v", life, d.q, o)
	}
	if _, early := fits(o.RetryAfter - 1); early {
		d.Fatalf("life %d: %+v: room before %+v", life, d.q, o)
	}
}

// TestDebtsAddUp pays many small debts of a time that is over, in their order, from more
// clients than the rate allows: they add up as they did then, although each alone would
// have come back.
func TestDebtsAddUp(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, LeakyBucket, Queue} {
		q := Quota{Algorithm: a, Limit: 10, Window: 1_000_000, Burst: 20}
		state, now := NewState(a), int64(1_800_000_000_000_000)
		for i := range int64(600) { // 20 a second for 30 seconds
			Decide(now, []Charge{{Quota: q, Cost: 1, Debt: true, Age: 30_000_000 - 50_000*i}}, []State{state})
			if state.Expires() < now {
				t.Fatalf("%v: forgotten after %d debts", a, i)
			}
			now++
		}
		if lacks := state.Advance(&q, now); lacks > q.Capacity()-299 || lacks < q.Capacity()-301 {
			t.Errorf("%v: room for %d", a, lacks)
		}
	}
}

// TestDebtsOfIDs pays debts of leases and of values in any order, also above the limit:
// each counts from its own time on.
func TestDebtsOfIDs(t *testing.T) {
	for _, a := range []Algorithm{Concurrency, Distinct} {
		for i := range stories(350) {
			d := newDebtor(t, a, i)
			for id := range uint64(30) {
				d.now += d.step() / 8
				u := use{at: max(0, d.now-d.step()/2), n: 1 + d.random.Int64N(2*d.q.Limit), id: id + 1}
				c := Charge{Quota: d.q, Cost: u.n, Debt: true, Age: d.now - u.at, ID: u.id}
				for range 1 + d.random.IntN(2) { // what is held or shown is not charged again
					Decide(d.now, []Charge{c}, []State{d.state})
				}
				d.used = append(d.used, u)
				want := d.q.Limit
				for _, u := range d.used {
					switch {
					case u.at+d.q.Window <= d.now:
					case a == Distinct:
						want = max(0, want-1)
					default:
						want -= min(u.n, d.q.Limit)
					}
				}
				if got := d.room(d.now); got != want && want > d.q.Limit-2*MaxLeases {
					t.Fatalf("life %d: %+v: room for %d, want %d", i, d.q, got, want)
				}
			}
			if leases, ok := d.state.(*leasesState); ok {
				id := d.used[len(d.used)-1].id
				before := leases.Advance(&d.q, d.now)
				leases.Release(&d.q, d.now, id)
				if d.room(d.now) < before {
					t.Fatal("a release takes")
				}
			}
		}
	}
}

// TestDebtsBar tells when strikes of before bar.
func TestDebtsBar(t *testing.T) {
	q := Quota{Algorithm: Ban, Limit: 3, Window: 10_000, Bar: 100_000}
	const now = 1_000_000
	strike := func(state State, n, at, now int64) int64 {
		d := Decide(now, []Charge{{Quota: q, Cost: n, Debt: true, Age: now - at}}, []State{state})
		return d.Outcomes()[0].ResetAfter
	}
	for name, test := range map[string]struct {
		strikes [][2]int64 // how many, and when
		reset   int64
	}{
		"at once":               {[][2]int64{{3, now - 1}}, 99_999},
		"between others":        {[][2]int64{{1, now - 9_000}, {1, now}, {1, now - 5_000}}, 100_000},
		"long ago":              {[][2]int64{{3, now - 90_000}}, 10_000},
		"a bar that is over":    {[][2]int64{{3, now - 100_000}}, 0},
		"apart":                 {[][2]int64{{2, now}, {1, now - 10_000}}, 10_000},
		"of a window before":    {[][2]int64{{1, now - 12_000}, {1, now - 13_000}, {1, now - 9_000}}, 91_000},
		"during a bar":          {[][2]int64{{3, now - 50_000}, {3, now - 1}}, 50_000},
		"before a bar was over": {[][2]int64{{3, now - 101_000}, {2, now - 1_001}}, 0},
		"after a bar":           {[][2]int64{{3, now - 101_000}, {2, now - 999}}, 9_001},
	} {
		state, reset := NewState(Ban), int64(0)
		for _, s := range test.strikes {
			reset = strike(state, s[0], s[1], now)
		}
		if reset != test.reset {
			t.Errorf("%s: full after %d, want %d", name, reset, test.reset)
		}
	}
}
