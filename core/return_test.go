package core

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/race"
)

// An admission is what was taken once, less what was given back of it.
type admission struct {
	Return
	taken, given int64
}

// A lender is a random life of one key, in which what was taken comes back: in
// parts, late, in any order, and while others take.
type lender struct {
	*testing.T
	random *rand.Rand
	q      Quota
	state  State
	now    int64
	past   []*admission // a cost of 0 stands for a refusal
}

func newLender(t *testing.T, a Algorithm, i int) *lender {
	random := rand.New(rand.NewPCG(uint64(a)+100, uint64(i)))
	l := &lender{T: t, random: random, state: NewState(a)}
	if a == SlidingLog {
		l.q = Quota{Limit: 1 + random.Int64N(9), Window: 10_000}
	} else {
		l.q = someQuota(t, random, a)
	}
	l.now = time.Date(2025, 3, 30, 0, 58, 0, 0, time.UTC).UnixMicro() + random.Int64N(3_600_000_000)
	return l
}

func (l *lender) take(cost int64) *admission {
	charge := Charge{Quota: l.q, Cost: cost}
	d := Decide(l.now, []Charge{charge}, []State{l.state})
	o := d.Outcomes()[0]
	a := &admission{Return: Return{Charge: charge, At: l.now, Remaining: o.Remaining, ResetAfter: o.ResetAfter}}
	if d.Allowed {
		a.taken = cost
	}
	l.past = append(l.past, a)
	return a
}

func (l *lender) giveBack(a *admission, n int64) int64 {
	before := l.room(l.now)
	r := a.Return
	r.Cost = n
	given := l.state.Return(&r, l.now)
	if given < 0 || given > n {
		l.Fatalf("%d of %d given back", given, n)
	}
	a.given += given
	hidden := l.q.Queues() // room that was too late, or in another gap
	if after := l.room(l.now); after < before || after > before+given && !hidden || after > l.q.Capacity() {
		l.Fatalf("at %d, %+v: room for %d became room for %d as %d of %d were given back", l.now, l.q, before, after, given, n)
	}
	return given
}

// room asks a copy.
func (l *lender) room(at int64) int64 { return l.state.Clone().Advance(&l.q, at) }

// asIf returns the definition of the algorithm, charged only with what was not
// given back. If keeps is set, a bucket is never new again in it: when that is
// depends on when units were given back, and a new bucket has fewer tokens.
func (l *lender) asIf(keeps bool) plain {
	q := l.q
	q.MaxWait = 0 // a turn that was given back may be soon enough where the end is not
	p := newPlain(q)
	if l.q.Algorithm == SlidingLog {
		p = &plainLog{q: l.q}
	}
	if p == nil {
		return nil
	}
	bucket, _ := p.(*plainBucket)
	if bucket != nil {
		bucket.keeps = keeps
	}
	for _, a := range l.past {
		if a.taken > a.given {
			p.take(a.At, a.taken-a.given)
		} else if bucket != nil {
			bucket.refuse(a.At)
		}
	}
	return p
}

type plainLog struct {
	q     Quota
	units []taken
}

func (p *plainLog) take(at, n int64) { p.units = append(p.units, taken{at, n}) }

func (p *plainLog) room(at int64) int64 {
	room := p.q.Limit
	for _, u := range p.units {
		if at-u.at < p.q.Window {
			room -= u.n
		}
	}
	return room
}

// step goes on by a time that is likely to be telling.
func (l *lender) step() int64 {
	each, _ := MulDiv(1, l.q.Window, l.q.Limit)
	steps := []int64{0, 0, 0, 1, each, each / 3, each + 1, l.random.Int64N(1 + 4*each), l.random.Int64N(1 + l.q.Window/3),
		l.random.Int64N(1 + l.q.fills()/2)}
	if l.random.IntN(8) == 0 {
		steps = append(steps, l.q.Window-1, l.q.Window, l.q.fills(), l.random.Int64N(2*l.q.Window))
	}
	return steps[l.random.IntN(len(steps))]
}

// TestReturnsNeverExceed gives back at random, and compares with what would be had
// the units never been taken: never is there room for more, at any time. The
// algorithms that remember when a unit was taken have room for exactly as many.
func TestReturnsNeverExceed(t *testing.T) {
	race.Skip(t)
	for _, a := range algorithmsBut() {
		t.Run(a.String(), func(t *testing.T) {
			lives, asked, given := stories(350), 0, 0
			for i := range lives {
				l := newLender(t, a, i)
				exact := !l.q.Refills() && !(a == FixedWindow && l.q.anchored())
				for range 40 {
					l.now += l.step()
					if len(l.past) > 0 && l.random.IntN(2) == 0 {
						last := l.past[max(0, len(l.past)-1-l.random.IntN(6))]
						if n := last.taken - last.given; n > 0 && last.given == 0 {
							asked++
							if l.giveBack(last, []int64{n, n, 1 + l.random.Int64N(n)}[l.random.IntN(3)]) > 0 {
								given++
							}
						}
					} else {
						costs := []int64{1, 1, 1, 1 + l.random.Int64N(l.q.Capacity()), max(1, l.room(l.now))}
						l.take(costs[l.random.IntN(len(costs))])
					}
					l.compare(exact)
				}
				l.checkNet()
			}
			t.Logf("%d lives: %d asked to give back, %d gave some", lives, asked, given)
		})
	}
}

func (l *lender) compare(exact bool) {
	if l.q.anchored() && l.q.Algorithm == FixedWindow {
		return // the window of another first unit: see checkNet
	}
	each, _ := MulDiv(1, l.q.Window, l.q.Limit)
	asIf := l.asIf(true)
	if asIf == nil {
		return
	}
	for _, after := range []int64{0, 1, each, l.random.Int64N(1 + l.q.Window), l.random.Int64N(1 + 3*each)} {
		at := l.now + after
		if got, want := l.room(at), asIf.room(at); got > want || exact && got != want {
			for _, a := range l.past {
				l.Logf("at %d: %d taken, %d of them given back; %d remained", a.At-l.now, a.taken, a.given, a.Remaining)
			}
			l.Fatalf("at %d, after %d, %+v: room for %d, and for %d had it not been taken", l.now, after, l.q, got, want)
		}
	}
}

// checkNet tells that what was kept is no more than an algorithm admits: in any
// time of buckets, and in each window of a window.
func (l *lender) checkNet() {
	switch l.q.Algorithm {
	case FixedWindow:
		if !l.q.anchored() {
			return
		}
		for i, first := range l.past { // no more than two windows meet in the time of one
			var sum int64
			for _, a := range l.past[i:] {
				if a.At-first.At < l.q.Window {
					sum += a.taken - a.given
				}
			}
			if sum > 2*l.q.Limit {
				l.Fatalf("%d kept within a window of %+v", sum, l.q)
			}
		}
	case TokenBucket, LeakyBucket:
		for i, first := range l.past {
			var sum int64
			for _, a := range l.past[i:] {
				sum += a.taken - a.given
				most := big.NewRat(a.At-first.At, l.q.Window)
				most.Mul(most, big.NewRat(l.q.Limit, 1)).Add(most, big.NewRat(l.q.Burst, 1))
				if big.NewRat(sum, 1).Cmp(most) > 0 {
					l.Fatalf("%d kept within %d of %+v", sum, a.At-first.At, l.q)
				}
			}
		}
	}
}

// TestReturnsAlone takes and gives all back, with nobody else in between: then
// nothing was ever taken. So it is of two, in either order, but for a part of a
// unit of each in a bucket.
func TestReturnsAlone(t *testing.T) {
	for _, a := range algorithmsBut(Queue) {
		t.Run(a.String(), func(t *testing.T) {
			for i := range stories(1_000) {
				l := newLender(t, a, i)
				for range l.random.IntN(4) {
					l.take(1 + l.random.Int64N(l.q.Capacity()))
					l.now += l.step()
				}
				if l.q.Algorithm == FixedWindow && l.q.anchored() && l.room(l.now) == l.q.Limit {
					continue
				}
				want := l.asIf(false)
				two := l.random.IntN(2) == 0
				out := []*admission{l.take(1 + l.random.Int64N(l.q.Capacity()))}
				if two {
					out = append(out, l.take(1+l.random.Int64N(l.q.Capacity())))
				}
				l.now += l.step()
				if two && l.random.IntN(2) == 0 {
					out[0], out[1] = out[1], out[0]
				}
				for _, a := range out {
					if a.taken > 0 {
						l.giveBack(a, a.taken)
					}
				}
				bucket, _ := want.(*plainBucket)
				if bucket != nil {
					bucket.refuse(out[0].At)
				}
				if want == nil {
					continue
				}
				for _, at := range []int64{l.now, l.now + 1, l.now + l.random.Int64N(l.q.Window)} {
					if probe, ok := l.state.Clone().(*bucketState); ok {
						if probe.Advance(&l.q, at); probe.isNew || bucket.isNew(at) {
							continue // giving back changes when that is
						}
					}
					got, whole := l.room(at), want.room(at)
					if got != whole && !(two && l.q.Refills() && whole-2 <= got && got < whole) {
						t.Fatalf("life %d: %+v: room for %d, and for %d before", i, l.q, got, whole)
					}
				}
			}
		})
	}
}

// TestReturnsUnderAnything gives back what was never taken, twice, under quotas
// that have changed and clocks that have stepped back: no key is lifted above a
// whole one, and none is broken.
func TestReturnsUnderAnything(t *testing.T) {
	race.Skip(t)
	for _, a := range algorithmsBut() {
		t.Run(a.String(), func(t *testing.T) {
			for i := range stories(1_000) {
				l := newLender(t, a, i)
				quotas := []Quota{l.q, l.q}
				if other := newLender(t, a, i+1_000_000).q; a != SlidingLog {
					quotas = append(quotas, other)
				}
				for range 40 {
					l.q = quotas[l.random.IntN(len(quotas))]
					l.now = max(0, l.now+l.step()-l.random.Int64N(3)*l.random.Int64N(l.q.Window))
					if len(l.past) == 0 || l.random.IntN(2) == 0 {
						l.take(1 + l.random.Int64N(l.q.Capacity()))
						continue
					}
					r := l.past[l.random.IntN(len(l.past))].Return
					if l.random.IntN(4) == 0 {
						r = Return{Charge: Charge{Quota: l.q}, At: max(0, l.now-l.step()), Remaining: l.random.Int64N(1 + l.q.Capacity()),
							ResetAfter: l.random.Int64N(1 + l.q.Window)}
					}
					r.Cost = []int64{1, l.random.Int64N(1 + l.q.Capacity()), MaxCost}[l.random.IntN(3)]
					given := l.state.Return(&r, l.now)
					if room := l.room(l.now); room > l.q.Capacity() || given < 0 || given > r.Cost {
						t.Fatalf("room for %d, %d given back: %+v", room, given, l.q)
					}
				}
			}
		})
	}
}

// TestReturnsByAnotherQuota gives back by one quota and then by another: what
// the one remembers tells the other nothing, and it gives nothing back.
func TestReturnsByAnotherQuota(t *testing.T) {
	l := &lender{T: t, q: Quota{Algorithm: TokenBucket, Limit: 1, Window: 5_000, Burst: 10}, state: NewState(TokenBucket), now: 1_000_000}
	a, b, c := l.take(3), l.take(3), l.take(3)
	l.now += 1_000
	if l.giveBack(a, 3) == 0 {
		t.Fatal("nothing given back")
	}
	other := b.Return
	other.Quota.Burst = 20
	if given := l.state.Return(&other, l.now); given != 0 {
		t.Errorf("%d given back by another quota", given)
	}
	if l.giveBack(c, 3) == 0 {
		t.Error("nothing given back after it")
	}
}

func TestValidateReturns(t *testing.T) {
	good := Return{Charge: Charge{Rule: "r", Quota: Quota{Limit: 1, Window: MinWindow}, Cost: 1}, At: 1}
	if err := ValidateReturns([]Return{good}); err != nil {
		t.Error(err)
	}
	if err := ValidateReturns([]Return{good, good}); err != nil {
		t.Errorf("a quota twice: %v", err)
	}
	with := func(change func(*Return)) []Return {
		r := good
		change(&r)
		return []Return{r}
	}
	for name, returns := range map[string][]Return{
		"none":               nil,
		"too many":           make([]Return, MaxCharges+1),
		"a negative number":  with(func(r *Return) { r.Cost = -1 }),
		"an enormous number": with(func(r *Return) { r.Cost = MaxCost + 1 }),
		"no quota":           with(func(r *Return) { r.Quota = Quota{} }),
		"before the epoch":   with(func(r *Return) { r.At = -1 }),
		"an enormous time":   with(func(r *Return) { r.At = MaxTime + 1 }),
		"negative remaining": with(func(r *Return) { r.Remaining = -1 }),
		"enormous remaining": with(func(r *Return) { r.Remaining = MaxLimit + 1 }),
		"negative reset":     with(func(r *Return) { r.ResetAfter = -1 }),
		"an enormous reset":  with(func(r *Return) { r.ResetAfter = 1 << 62 }),
	} {
		if err := ValidateReturns(returns); !errors.Is(err, ErrCharges) {
			t.Errorf("%s: error is %v, want ErrCharges", name, err)
		}
	}
}

// TestReturnsThatOverlap has callers take from a bucket at the same time and give all of
// it back, in many orders. However often they do, what is missing is at most three times what
// they use at once.
func TestReturnsThatOverlap(t *testing.T) {
	race.Skip(t)
	type loan struct {
		Return
		ends int64
	}
	for _, callers := range []int{1, 2, 4, 16, 64, 256} {
		for order, ends := range map[string]func(*rand.Rand) int64{
			"as they came":   func(*rand.Rand) int64 { return 20_000 },
			"nearly so":      func(r *rand.Rand) int64 { return 20_000 + r.Int64N(5_000) },
			"in any order":   func(r *rand.Rand) int64 { return r.Int64N(40_000) },
			"a few are slow": func(r *rand.Rand) int64 { return []int64{20_000, 2_000_000}[r.IntN(20)/19] },
			"at once":        func(*rand.Rand) int64 { return 0 },
		} {
			for _, cost := range []int64{1, 5} {
				random := rand.New(rand.NewPCG(22, uint64(callers)))
				most := int64(3*callers) * cost
				q := Quota{Algorithm: TokenBucket, Limit: 300, Window: 60_000_000, Burst: max(300, 2*most)}
				state, now := NewState(TokenBucket), int64(1_800_000_000_000_000)
				var loans []loan
				for range stories(200) {
					slices.SortStableFunc(loans, func(a, b loan) int { return int(a.ends - b.ends) })
					now++
					for keep := random.IntN(callers); len(loans) > keep; loans = loans[1:] {
						now = max(now, loans[0].ends)
						state.Return(&loans[0].Return, now)
					}
					now++
					for len(loans) < callers {
						now += random.Int64N(200) * random.Int64N(2) // several in a microsecond, as in one call
						charge := Charge{Quota: q, Cost: cost}
						d := Decide(now, []Charge{charge}, []State{state})
						if used := state.Used(); !d.Allowed || used > most {
							t.Fatalf("%d callers, %s, cost %d: %d are missing", callers, order, cost, used)
						}
						loans = append(loans, loan{Return{Charge: charge, At: now, Remaining: d.Outcomes()[0].Remaining}, now + ends(random)})
					}
				}
			}
		}
	}
}

// anchored reports whether the windows of q begin with a key's first unit.
func (q *Quota) anchored() bool { return !q.Aligned && q.Calendar.Unit == 0 }
