package core

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A plainDistinct is the definition of distinct values: everything that was shown,
// gone through anew for each question.
type plainDistinct struct{ shown []value }

// redate dates what is ahead of now now.
func (p *plainDistinct) redate(q Quota, now int64) {
	redated := false
	for i := range p.shown {
		if p.shown[i].at > now {
			p.shown[i].at, redated = now, true
		}
	}
	if redated {
		p.forget(q, now)
	}
}

// forget drops what has left the window, which could come back if the clock stepped
// back.
func (p *plainDistinct) forget(q Quota, now int64) {
	p.shown = slices.DeleteFunc(p.shown, func(v value) bool { return now-v.at >= q.Window })
}

// last returns when each value in the window was last shown, oldest first.
func (p *plainDistinct) last(q Quota, at int64) (times []int64) {
	last := make(map[uint64]int64)
	for _, v := range p.shown {
		if at-v.at < q.Window {
			last[v.id] = max(last[v.id], v.at)
		}
	}
	for _, t := range last {
		times = append(times, t)
	}
	slices.Sort(times)
	return times
}

func (p *plainDistinct) knows(q Quota, at int64, id uint64) bool {
	return slices.ContainsFunc(p.shown, func(v value) bool { return v.id == id && at-v.at < q.Window })
}

func TestDistinctAgainstDefinition(t *testing.T) {
	n, refusals := stories(1_500), 0
	for i := range n {
		random := rand.New(rand.NewPCG(10, uint64(i)))
		stepsBack, changes := i&1 != 0, i&2 != 0
		q := Quota{Algorithm: Distinct, Limit: 1 + random.Int64N(6), Window: MinWindow + random.Int64N(1_000)}
		plain, state, now := &plainDistinct{}, NewState(Distinct), int64(1_000_000)
		var admitted []value
		for range 120 {
			switch step := random.Int64N(600); random.IntN(8) {
			case 0:
				if stepsBack {
					now -= 3 * step
				}
			case 1:
				if changes {
					q.Limit = 1 + random.Int64N(6)
				}
			case 2:
				now += q.Window - 2 + random.Int64N(4)
			case 3:
			default:
				now += step
			}
			plain.redate(q, now)
			c := Charge{Quota: q, Cost: random.Int64N(4), ID: random.Uint64N(uint64(q.Limit) + 4)}
			other, refuses := NewState(SlidingLog), random.IntN(4) == 0
			if refuses {
				other.Advance(&Quota{Limit: 1, Window: q.Window}, now)
				other.Take(1, 0)
			}
			charges := []Charge{c, {Quota: Quota{Limit: 1, Window: q.Window}, Cost: 1}}

			shows := c.Cost > 0 && c.ID != 0
			fits := !shows || plain.knows(q, now, c.ID) || int64(len(plain.last(q, now))) < q.Limit
			allowed := fits && !refuses
			if allowed && shows {
				plain.forget(q, now)
				plain.shown = append(plain.shown, value{id: c.ID, at: now})
				admitted = append(admitted, value{id: c.ID, at: now})
			}
			times := plain.last(q, now)
			used := int64(len(times))
			leaves := func(n int64) int64 { return times[n-1] + q.Window - now }
			want := Outcome{Remaining: max(0, q.Limit-used)}
			if used > 0 {
				want.ResetAfter = leaves(used)
				if fits {
					want.MoreAfter = leaves(max(1, 1+used-q.Limit))
				} else {
					want.RetryAfter = leaves(1 + used - q.Limit)
					refusals++
				}
			}
			d := Decide(now, charges, []State{state, other})
			if got := d.Outcomes()[0]; got != want || d.Allowed != allowed {
				t.Fatalf("story %d at %d, cost %d of value %d of %+v: allowed %v, want %v\ngot  %+v\nwant %+v\n%v",
					i, now, c.Cost, c.ID, q, d.Allowed, allowed, got, want, plain.shown)
			}
		}
		if !stepsBack && !changes {
			checkDistinct(t, q, admitted)
		}
	}
	t.Logf("%d stories, %d refused for new values", n, refusals)
}

// checkDistinct checks that no window has more different values than the limit. It is
// enough to look at those that end with a value.
func checkDistinct(t *testing.T, q Quota, admitted []value) {
	for i := range admitted {
		different := make(map[uint64]bool)
		for j := i; j >= 0 && admitted[i].at-admitted[j].at < q.Window; j-- {
			different[admitted[j].id] = true
		}
		if int64(len(different)) > q.Limit {
			t.Fatalf("%d different values within %d: %v", len(different), q.Window, admitted[:i+1])
		}
	}
}

// TestDistinctReturn gives back values that were new, and no others: otherwise what a
// value took earlier would be forgotten.
func TestDistinctReturn(t *testing.T) {
	q := Quota{Algorithm: Distinct, Limit: 2, Window: 10_000}
	state := NewState(Distinct)
	show := func(id uint64, at int64) Return {
		c := Charge{Quota: q, Cost: 1, ID: id}
		d := Decide(at, []Charge{c}, []State{state})
		if !d.Allowed {
			t.Errorf("%d refused at %d", id, at)
		}
		return d.Return(0, c)
	}
	give := func(r Return, now, want int64) {
		t.Helper()
		if got := state.Return(&r, now); got != want {
			t.Errorf("%d given back, want %d", got, want)
		}
	}
	first, second := show(1, 1_000), show(2, 2_000)
	give(second, 3_000, 1)
	give(second, 3_000, 0)
	show(3, 4_000)
	again := show(1, 5_000)
	give(first, 6_000, 0)
	give(again, 6_000, 0)
	none := show(0, 6_000)
	give(none, 6_000, 0)
	late := show(4, 15_000)
	give(late, 25_000, 0)
}
