package core

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/routelimit/limit/internal/race"
)

// A deploy is versions of a quota that charge one key, in any order.
type deploy struct {
	*testing.T
	random   *rand.Rand
	versions []Quota
	loosest  Quota // the largest burst and the fastest rate, not those of one version
	tightest Quota // the smallest burst and the slowest rate
	state    State
	now      int64
}

func slower(a, b Quota) bool {
	return big.NewRat(a.Limit, a.Window).Cmp(big.NewRat(b.Limit, b.Window)) < 0
}

func newDeploy(t *testing.T, a Algorithm, i int) *deploy {
	random := rand.New(rand.NewPCG(uint64(a)+300, uint64(i)))
	d := &deploy{T: t, random: random, state: NewState(a), now: 1_000_000_000 + random.Int64N(1_000_000)}
	oneRate, small := random.IntN(3) == 0, random.IntN(2) == 0
	for v := range 2 + random.IntN(3) {
		q := Quota{Algorithm: a, Limit: 1 + random.Int64N(20), Window: []int64{1_000, 1_009, 100_000, 1_000_000, 7_000_000}[random.IntN(5)]}
		if v > 0 && oneRate {
			q.Limit, q.Window = d.versions[0].Limit, d.versions[0].Window
		}
		q.Burst = a.row().minBurst + random.Int64N([]int64{2, 10, 100}[random.IntN(3)])
		if small {
			q.Burst = a.row().minBurst + random.Int64N(4)
		}
		d.versions = append(d.versions, q)
		if v == 0 {
			d.loosest, d.tightest = q, q
			continue
		}
		most, least := max(d.loosest.Burst, q.Burst), min(d.tightest.Burst, q.Burst)
		if slower(d.loosest, q) {
			d.loosest = q
		}
		if slower(q, d.tightest) {
			d.tightest = q
		}
		d.loosest.Burst, d.tightest.Burst = most, least
	}
	return d
}

// step returns a time until the next request.
func (d *deploy) step() int64 {
	q := d.versions[d.random.IntN(len(d.versions))]
	each := q.Window / q.Limit
	steps := []int64{0, 0, 1, each, each + 1, each / 3, d.random.Int64N(1 + each), d.random.Int64N(1 + 3*each)}
	if d.random.IntN(30) == 0 {
		steps = append(steps, q.fills(), d.random.Int64N(1+q.fills()))
	}
	return steps[d.random.IntN(len(steps))]
}

func (d *deploy) take(cost int64) (Quota, Decision) {
	q := d.versions[d.random.IntN(len(d.versions))]
	return q, Decide(d.now, []Charge{{Quota: q, Cost: cost}}, []State{d.state})
}

// TestVersionsOfBuckets has versions with other bursts, rates and windows charge a bucket.
// In any time, all that is admitted, and owed, fits into one bucket with the largest burst
// and the fastest rate. And all together admit at least what the smallest burst and the
// slowest rate admit of the same requests, but for one that costs more than one unit.
func TestVersionsOfBuckets(t *testing.T) {
	race.Skip(t)
	for _, a := range []Algorithm{TokenBucket, LeakyBucket} {
		for i := range stories(200) {
			d := newDeploy(t, a, i)
			most, least := &plainBucket{q: d.loosest}, &plainBucket{q: d.tightest}
			costs, debts := 1+int64(i%2)*(d.tightest.Burst-1), i%4 >= 2
			var all, alone int64
			for range 200 {
				d.now += d.step()
				cost := 1 + d.random.Int64N(costs)
				if debts && d.random.IntN(20) == 0 {
					c := Charge{Quota: d.versions[d.random.IntN(len(d.versions))], Cost: cost, Debt: true}
					Decide(d.now, []Charge{c}, []State{d.state})
					most.take(d.now, cost)
					least.take(d.now, cost)
					continue
				}
				room := most.room(d.now)
				if _, got := d.take(cost); got.Allowed {
					if all += cost; room < cost {
						t.Fatalf("life %d: %d admitted, and room for %d by the loosest of %+v", i, cost, room, d.versions)
					}
					most.take(d.now, cost)
				}
				if least.room(d.now) >= cost {
					alone += cost
					least.take(d.now, cost)
				}
				if all < alone-costs+1 {
					t.Fatalf("life %d: %d admitted, and %d by the tightest of %+v", i, all, alone, d.versions)
				}
			}
		}
	}
}

// TestVersionsOfQueues has versions with other bursts, rates and windows charge a queue.
// Turns follow each other by the fastest rate or more slowly, and no more wait than may:
// see [Queue]. Of the same requests, all together admit at least what the slowest rate
// admits with the shortest queue, in time, but for one.
func TestVersionsOfQueues(t *testing.T) {
	race.Skip(t)
	for i := range stories(200) {
		d := newDeploy(t, Queue, i)
		wide, sum, shortest := d.loosest, int64(0), d.versions[0]
		for _, q := range d.versions {
			sum += q.Capacity()
			if q.Capacity()*q.Window*shortest.Limit < shortest.Capacity()*shortest.Window*q.Limit {
				shortest = q
			}
		}
		if wide.Burst = sum; !slower(d.tightest, d.loosest) {
			wide.Burst = d.loosest.Capacity()
		}
		narrow := d.tightest
		narrow.Burst = shortest.Capacity()*shortest.Window*narrow.Limit/(shortest.Limit*narrow.Window) - 1
		most, least := &plainBucket{q: wide}, &plainLine{q: narrow, end: new(big.Rat)}
		var all, alone, next int64 // next is when the next turn may begin
		for range 200 {
			d.now += d.step()
			q, got := d.take(1)
			if got.Allowed {
				all++
				if most.room(d.now) < 1 {
					t.Fatalf("life %d: %d admitted, and no room by %+v", i, all, d.versions)
				}
				most.take(d.now, 1)
				if d.now+got.Delay < next {
					t.Fatalf("life %d: a turn at %d, and the next is at %d: %+v", i, d.now+got.Delay, next, d.versions)
				}
				next = d.now + got.Delay + q.Window/q.Limit // rounded down, and Delay up
				if got.Delay > 0 {
					next--
				}
			}
			if least.room(d.now) >= 1 {
				alone++
				least.take(d.now, 1)
			}
			if all < alone-1 {
				t.Fatalf("life %d: %d admitted, and %d by the tightest of %+v", i, all, alone, d.versions)
			}
		}
	}
}

// TestVersionsReturn has versions give back what they took, at any later time: what is kept
// is in any time at most a burst more than without.
func TestVersionsReturn(t *testing.T) {
	race.Skip(t)
	for i := range stories(350) {
		d := newDeploy(t, TokenBucket, i)
		var past []*admission
		for range 80 {
			d.now += d.step()
			if len(past) > 0 && d.random.IntN(2) == 0 {
				if a := past[max(0, len(past)-1-d.random.IntN(6))]; a.given == 0 {
					a.given = d.state.Return(&a.Return, d.now)
				}
				continue
			}
			cost := 1 + d.random.Int64N(3)
			if q, got := d.take(cost); got.Allowed {
				past = append(past, &admission{Return: got.Return(0, Charge{Quota: q, Cost: cost}), taken: cost})
			}
		}
		for j, first := range past {
			var kept int64
			for _, a := range past[j:] {
				kept += a.taken - a.given
				most := big.NewRat(a.At-first.At, d.loosest.Window)
				most.Mul(most, big.NewRat(d.loosest.Limit, 1)).Add(most, big.NewRat(2*d.loosest.Burst, 1))
				if big.NewRat(kept, 1).Cmp(most) > 0 {
					t.Fatalf("life %d: %d kept within %d of %+v", i, kept, a.At-first.At, d.versions)
				}
			}
		}
	}
}

// TestVersionsOwe owes on top of what a large burst admitted: a version with a small burst
// waits for the debt, and not for the rest.
func TestVersionsOwe(t *testing.T) {
	large := Quota{Algorithm: TokenBucket, Limit: 1, Window: 1_000_000, Burst: 100}
	small := large
	small.Burst = 1
	for _, owes := range []Quota{large, small} {
		state, now := []State{NewState(TokenBucket)}, int64(1_000_000_000)
		take := func(q Quota, cost int64, debt bool) Outcome {
			d := Decide(now, []Charge{{Quota: q, Cost: cost, Debt: debt}}, state)
			return d.Outcomes()[0]
		}
		take(large, 100, false)
		take(owes, 5, true)
		if got := take(small, 1, false).RetryAfter; got != 6_000_000 {
			t.Errorf("the small burst waits for %d after a debt by a burst of %d", got, owes.Burst)
		}
		if got := take(large, 1, false).RetryAfter; got != 6_000_000 {
			t.Errorf("the large burst waits for %d after a debt by a burst of %d", got, owes.Burst)
		}
	}
}

// TestVersionsKeepGaps has a version read, and be refused by, a queue in which another one
// gave a turn back: the turn stays free.
func TestVersionsKeepGaps(t *testing.T) {
	long := Quota{Algorithm: Queue, Limit: 10, Window: 1_000_000, Burst: 9}
	short, slow := long, long
	short.Burst, slow.Burst, slow.Limit = 0, 0, 3
	state, now := []State{NewState(Queue)}, int64(1_000_000_000)
	take := func(q Quota, cost int64) (Charge, Decision) {
		c := Charge{Quota: q, Cost: cost}
		return c, Decide(now, []Charge{c}, state)
	}
	take(long, 3)
	c, left := take(long, 2)
	take(long, 5)
	back := left.Return(0, c)
	if given := state[0].Return(&back, now); given != 2 {
		t.Fatalf("%d given back", given)
	}
	for _, other := range []Quota{short, slow} {
		if _, d := take(other, 1); d.Allowed {
			t.Fatalf("%+v is admitted", other)
		}
		take(other, 0)
	}
	if _, d := take(long, 2); !d.Allowed || d.Delay != 300_000 {
		t.Errorf("the turn is gone: %+v", d)
	}
}
