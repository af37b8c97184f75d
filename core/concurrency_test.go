package core

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// plainLeases is the definition of leases: a list that is gone through anew for
// each question.
type plainLeases struct {
	list    []lease
	longest int64 // how long they live at most
}

// advance dates what lives for too long, and says whether there was any.
func (p *plainLeases) advance(now int64) {
	redated := false
	for i := range p.list {
		if p.list[i].ends > now+p.longest {
			p.list[i].ends, redated = now+p.longest, true
		}
	}
	if redated {
		p.forget(now)
	}
}

// keep remembers how long leases live.
func (p *plainLeases) keep(q Quota, now int64) {
	if p.used(now) == 0 {
		p.longest = 0
	}
	p.longest = max(p.longest, q.Window)
}

func (p *plainLeases) forget(now int64) {
	p.list = slices.DeleteFunc(p.list, func(l lease) bool { return l.ends <= now })
}

func (p *plainLeases) used(at int64) (used int64) {
	for _, l := range p.list {
		if l.ends > at {
			used += l.units
		}
	}
	return used
}

// until returns how long until something holds. Nothing changes but when a lease
// ends.
func (p *plainLeases) until(now int64, holds func(at int64) bool) int64 {
	waits := []int64{0}
	for _, l := range p.list {
		if l.ends > now {
			waits = append(waits, l.ends-now)
		}
	}
	slices.Sort(waits)
	for _, wait := range waits {
		if holds(now + wait) {
			return wait
		}
	}
	return Never
}

func (p *plainLeases) decide(c Charge, now int64) Outcome {
	q := c.Quota
	p.advance(now)
	var o Outcome
	o.RetryAfter = p.until(now, func(at int64) bool { return c.Cost == 0 || p.used(at)+c.Cost <= q.Limit })
	fits := o.Fits()
	if fits && c.Cost > 0 {
		p.keep(q, now)
		p.forget(now)
		p.list = append(p.list, lease{c.ID, now + q.Window, c.Cost})
	}
	remaining := func(at int64) int64 { return max(0, q.Limit-p.used(at)) }
	o.Remaining = remaining(now)
	o.ResetAfter = p.until(now, func(at int64) bool { return p.used(at) == 0 })
	if fits && p.used(now) > 0 {
		o.MoreAfter = p.until(now, func(at int64) bool { return remaining(at) > o.Remaining })
	}
	return o
}

func (p *plainLeases) renew(q Quota, now int64, id uint64) bool {
	p.advance(now)
	held := false
	for i := range p.list {
		if l := &p.list[i]; l.id == id && l.ends > now {
			p.keep(q, now)
			l.ends, held = now+q.Window, true
		}
	}
	if held {
		p.forget(now)
	}
	return held
}

func (p *plainLeases) release(q Quota, now int64, id uint64) {
	p.advance(now)
	n := len(p.list)
	p.list = slices.DeleteFunc(p.list, func(l lease) bool { return l.id == id })
	if len(p.list) < n {
		p.forget(now)
	}
}

func TestLeasesAgainstDefinition(t *testing.T) {
	n, decisions := stories(5_000), 0
	for i := range n {
		random := rand.New(rand.NewPCG(3, uint64(i)))
		q := Quota{Algorithm: Concurrency, Limit: 1 + random.Int64N(9), Window: MinWindow + random.Int64N(1_000)}
		now := int64(1_000_000)
		state, plain := &leasesState{}, &plainLeases{}
		for range 100 {
			switch step := random.Int64N(600); random.IntN(8) {
			case 0:
				if i&1 != 0 {
					now -= 3 * step
				}
			case 1:
				if i&2 != 0 {
					q.Limit = 1 + random.Int64N(9)
				}
			case 2:
				if i&4 != 0 {
					q.Window = MinWindow + random.Int64N(1_000)
				}
			case 3:
				now += 4 * step
			case 4:
				if len(plain.list) > 0 { // where a lease ends
					now += max(0, plain.list[random.IntN(len(plain.list))].ends-now-1+random.Int64N(3))
				}
			default:
				now += step
			}
			c := Charge{Quota: q, Cost: 1, ID: 1 + random.Uint64N(12)}
			switch random.IntN(5) {
			case 0:
				got, want := state.Renew(&q, now, c.ID), plain.renew(q, now, c.ID)
				if got != want {
					t.Fatalf("story %d at %d: lease %d held: %v, want %v", i, now, c.ID, got, want)
				}
			case 1:
				state.Release(&q, now, c.ID)
				plain.release(q, now, c.ID)
			case 2:
				c.Cost = random.Int64N(q.Limit + 2)
			}
			want := plain.decide(c, now)
			if c.Cost > q.Limit {
				want.RetryAfter = Never
			}
			d := Decide(now, []Charge{c}, []State{state})
			if got := d.Outcomes()[0]; got != want || d.Allowed != want.Fits() {
				t.Fatalf("story %d at %d, cost %d of %+v:\ngot  %+v\nwant %+v\nleases %v", i, now, c.Cost, q, got, want, plain.list)
			}
			if d.Allowed && c.Cost > 0 && plain.used(now) > q.Limit {
				t.Fatalf("story %d: %d held of %d", i, plain.used(now), q.Limit)
			}
			decisions++
		}
	}
	t.Logf("%d stories, %d decisions", n, decisions)
}

func TestValidateLeases(t *testing.T) {
	quota := Quota{Algorithm: Concurrency, Limit: 2, Window: 1_000_000}
	good := Charge{Rule: "a", Quota: quota, ID: 7}
	for _, test := range []struct {
		charges []Charge
		words   string // none if they are valid
	}{
		{[]Charge{good}, ""},
		{[]Charge{good, {Rule: "b", Quota: quota, ID: 7, Cost: 1}}, ""},
		{nil, "0 leases: a call renews or releases 1 to 256"},
		{slices.Repeat([]Charge{good}, MaxLeaseCharges), ""},
		{slices.Repeat([]Charge{good}, MaxLeaseCharges+1), "257 leases"},
		{[]Charge{{Rule: "a", Quota: quota}}, "a lease without an id: write the one that it was taken with"},
		{[]Charge{good, {Rule: "b", Quota: Quota{Limit: 1, Window: 1_000}, ID: 7}}, `rule "b": algorithm sliding-log has no leases`},
		{[]Charge{{Rule: "a", Quota: Quota{Algorithm: Concurrency, Limit: MaxLeases + 1, Window: 1_000}, ID: 7}}, "too large for concurrency"},
	} {
		err := ValidateLeases(test.charges)
		switch {
		case test.words == "" && err != nil:
			t.Errorf("%+v: %v", test.charges, err)
		case test.words != "" && (!errors.Is(err, ErrCharges) || !strings.Contains(err.Error(), test.words)):
			t.Errorf("%+v: %v; want %q", test.charges, err, test.words)
		}
	}
	without := []Charge{{Rule: "a", Quota: quota, Cost: 1}}
	if err := ValidateCharges(without); !errors.Is(err, ErrCharges) || !strings.Contains(err.Error(), "a lease without an id") {
		t.Errorf("taking a lease without an id: %v", err)
	}
	without[0].Cost = 0
	if err := ValidateCharges(without); err != nil {
		t.Errorf("a look needs no id: %v", err)
	}
}
