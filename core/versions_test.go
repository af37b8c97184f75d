package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routelimit/limit/internal/race"
)

// A versionsPlain is the promise to several versions of a rule, as plain as can be: a list
// of all units that any version admitted since the key was new, and when each version took
// part first.
type versionsPlain struct {
	units   []versionsUnit
	since   map[Quota]int64 // when a version first took units
	late    map[Quota]bool  // whether units had been dropped by then
	began   int64           // when the key was new
	longest int64           // window of those in since
	most    int64           // limit of those in since
	full    int64           // when there were more units than that
}

type versionsUnit struct {
	at int64
	id uint64
}

// renew begins anew if all units have left the longest window.
func (p *versionsPlain) renew(now int64) {
	last := int64(-1 << 62)
	for _, u := range p.units {
		last = max(last, u.at)
	}
	if now-last >= p.longest {
		*p = versionsPlain{since: map[Quota]int64{}, late: map[Quota]bool{}, began: now}
	}
}

func (p *versionsPlain) join(q Quota, now int64) {
	if _, known := p.since[q]; !known {
		p.since[q], p.late[q] = now, p.full > 0
	}
	p.longest, p.most = max(p.longest, q.Window), max(p.most, q.Limit)
}

// over reports whether there were more units than the largest limit. Then a state keeps
// the newest only: what is given back, or a value that is shown again, is off by the others.
func (p *versionsPlain) over(q Quota, now int64) bool {
	q.Window = p.longest
	if p.used(q, now) > p.most {
		p.full = now
	}
	return p.full > 0 && now-p.full < p.longest
}

// knows reports whether the state must know all units in the window of a version: those
// from before its first one may have left the windows of the others, or have been more than
// their limits.
func (p *versionsPlain) knows(q Quota, now int64) bool {
	since, known := p.since[q]
	return len(p.units) == 0 || known && (since == p.began && !p.late[q] || now-since >= q.Window)
}

// used counts the units, or the values, in the window of a version.
func (p *versionsPlain) used(q Quota, now int64) (n int64) {
	seen := make(map[uint64]bool)
	for _, u := range p.units {
		if now-u.at < q.Window && !seen[u.id] {
			seen[u.id] = q.Algorithm == Distinct
			n++
		}
	}
	return n
}

func someVersions(random *rand.Rand, a Algorithm) (list []Quota) {
	limits := []int64{1, 2, 3, 5, 8, 20, 100, 127, 128, 129, 300}
	windows := []int64{MinWindow, 1_500, 7_000, 10_000, 100_000, 1_000_000, 1<<32 - 1, 1 << 32, 5 << 32}
	for range 2 + random.IntN(3) {
		list = append(list, Quota{Algorithm: a, Limit: limits[random.IntN(len(limits))], Window: windows[random.IntN(len(windows))]})
	}
	return list
}

// TestVersionsAgainstDefinition has random versions of a rule charge one key, with random
// costs, debts and returns. Each admits as much as fits into its window beside what all of
// them admitted, and not a unit more.
func TestVersionsAgainstDefinition(t *testing.T) {
	race.Skip(t)
	for _, a := range []Algorithm{SlidingLog, Distinct} {
		t.Run(a.String(), func(t *testing.T) {
			decisions, exact := 0, 0
			for i := range stories(1_500) {
				random := rand.New(rand.NewPCG(21, uint64(i)))
				versions := someVersions(random, a)
				state, plain, now := NewState(a), &versionsPlain{}, int64(1)<<50
				var loans []Return
				for range 150 {
					q := versions[random.IntN(len(versions))]
					now += []int64{0, 1, 1, q.Window / 3, q.Window - 1, q.Window, random.Int64N(q.Window), random.Int64N(20_000), random.Int64N(20)}[random.IntN(9)]
					plain.renew(now)
					switch random.IntN(12) {
					case 0:
						state.Advance(&q, now) // a look
						continue
					case 1:
						if a == Distinct || len(loans) == 0 || plain.over(q, now) {
							continue
						}
						r := loans[random.IntN(len(loans))]
						r.Quota = versions[random.IntN(len(versions))] // whichever gives back
						if now-r.At < r.Quota.Window {
							plain.giveBack(r.At, state.Return(&r, now))
						}
						continue
					case 2:
						if a == SlidingLog {
							plain.owe(state, q, now, 1+random.Int64N(q.Limit+2), []int64{0, 1, random.Int64N(q.Window), q.Window, random.Int64N(2 * q.Window)}[random.IntN(5)])
							continue
						}
					}
					c := Charge{Quota: q, Cost: 1 + random.Int64N(min(q.Limit+1, 9)), ID: 1 + random.Uint64N(12)}
					if a == Distinct {
						c.Cost = 1
					}
					used, known := plain.used(q, now), a == Distinct && plain.knowsValue(q, now, c.ID)
					d := Decide(now, []Charge{c}, []State{state})
					decisions++
					fits := used+c.Cost <= q.Limit || known
					name := fmt.Sprintf("story %d: %d units by %d/%d at %d", i, c.Cost, q.Limit, q.Window, now-1<<50)
					if known && plain.over(q, now) {
						fits = d.Allowed
					}
					if plain.knows(q, now) {
						exact++
						if d.Allowed != fits {
							t.Fatalf("%s: admitted %v, and %d are used", name, d.Allowed, used)
						}
					} else if !d.Allowed && fits && !known {
						t.Fatalf("%s: refused, and %d are used", name, used)
					}
					if d.Allowed {
						plain.join(q, now)
						for j := range c.Cost {
							id := c.ID
							if a == SlidingLog {
								id = uint64(now)<<8 + uint64(j)
							}
							plain.units = append(plain.units, versionsUnit{now, id})
						}
						plain.over(q, now)
						loans = append(loans, d.Return(0, c))
					}
				}
			}
			t.Logf("%d decisions, %d of them by versions that know all", decisions, exact)
			if exact < decisions/2 {
				t.Error("too few versions know all")
			}
		})
	}
}

// owe takes units of before, which count for all versions as if they had been admitted then.
func (p *versionsPlain) owe(state State, q Quota, now, n, age int64) {
	Decide(now, []Charge{{Quota: q, Cost: n, Debt: true, Age: age}}, []State{state})
	longest := q.Window
	if len(p.units) > 0 {
		longest = max(longest, p.longest)
	}
	if age < longest {
		p.join(q, now)
		p.units = append(p.units, slices.Repeat([]versionsUnit{{at: now - age}}, int(n))...)
		p.over(q, now)
	}
}

func (p *versionsPlain) giveBack(at, n int64) {
	p.units = slices.DeleteFunc(p.units, func(u versionsUnit) bool {
		gone := n > 0 && u.at == at
		if gone {
			n--
		}
		return gone
	})
}

func (p *versionsPlain) knowsValue(q Quota, now int64, id uint64) bool {
	return slices.ContainsFunc(p.units, func(u versionsUnit) bool { return u.id == id && now-u.at < q.Window })
}

// TestVersionsOfBans has two versions of a ban strike one key. Both count all strikes, a
// bar that one of them begins holds for both, and each ends it after its own time.
func TestVersionsOfBans(t *testing.T) {
	const sec = 1_000_000
	long := Quota{Algorithm: Ban, Limit: 5, Window: 100 * sec, Bar: 50 * sec, MaxBar: 200 * sec}
	brief := Quota{Algorithm: Ban, Limit: 3, Window: 10 * sec, Bar: 5 * sec}
	state := NewState(Ban)
	strikes(t, state, long, 0, 2)
	strikes(t, state, brief, 20*sec, 2)
	if got := barredFor(state, brief, 20*sec); got != 0 {
		t.Errorf("barred for %d by two strikes in its window", got)
	}
	strikes(t, state, brief, 21*sec, 1) // the third in its window, and the fifth of all
	for _, want := range []struct{ at, long, brief int64 }{{21, 50, 5}, {26, 45, 0}, {30, 41, 0}} {
		if got := barredFor(state, long, want.at*sec); got != want.long*sec {
			t.Errorf("at %d: the long one bars for %d", want.at, got)
		}
		if got := barredFor(state, brief, want.at*sec); got != want.brief*sec {
			t.Errorf("at %d: the brief one bars for %d", want.at, got)
		}
	}
	strikes(t, state, long, 71*sec, 5)
	if got := barredFor(state, long, 71*sec); got != 100*sec {
		t.Errorf("the second bar lasts %d", got)
	}
	if got := barredFor(state, brief, 71*sec); got != 5*sec {
		t.Errorf("the second bar of the brief one lasts %d", got)
	}
}
