package core

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/routelimit/limit/internal/race"
)

// A plainBan is the definition of a ban: all strikes and bars there have been, gone
// through anew for each question.
type plainBan struct {
	q       Quota
	strikes []int64
	bars    []bar
}

type bar struct{ begins, ends int64 }

func (p *plainBan) longest() int64 { return max(p.q.Bar, p.q.MaxBar) }

// barredUntil returns the end of the bar that is in force, or 0.
func (p *plainBan) barredUntil(at int64) int64 {
	for _, b := range p.bars {
		if b.begins <= at && at < b.ends {
			return b.ends
		}
	}
	return 0
}

// counting returns the strikes within the window since the last bar began.
func (p *plainBan) counting(at int64) (list []int64) {
	for _, s := range p.strikes {
		since := len(p.bars) == 0 || s >= p.bars[len(p.bars)-1].ends
		if at-s < p.q.Window && since {
			list = append(list, s)
		}
	}
	return list
}

func (p *plainBan) strike(at int64) {
	p.strikes = append(p.strikes, at)
	if int64(len(p.counting(at))) < p.q.Limit {
		return
	}
	length := p.q.Bar
	for i := len(p.bars) - 1; i >= 0; i-- { // each that followed the one before within the longest
		next := at
		if i+1 < len(p.bars) {
			next = p.bars[i+1].begins
		}
		if next-p.bars[i].ends >= p.longest() {
			break
		}
		length = min(2*length, p.longest())
	}
	p.bars = append(p.bars, bar{at, at + length})
}

// outcome is that of a charge that needs some units, after the decision.
func (p *plainBan) outcome(at, needs int64, admitted bool) (o Outcome) {
	if until := p.barredUntil(at); until > 0 {
		o.ResetAfter = until - at
		switch {
		case admitted:
			o.MoreAfter = until - at
		case needs > p.q.Limit:
			o.RetryAfter = Never
		default:
			o.RetryAfter = until - at
		}
		return o
	}
	strikes := p.counting(at)
	leaves := func(n int64) int64 { return strikes[n-1] + p.q.Window - at }
	used := int64(len(strikes))
	o.Remaining = p.q.Limit - used
	if used > 0 {
		o.ResetAfter = leaves(used)
	}
	switch {
	case needs > p.q.Limit:
		o.RetryAfter = Never
	case !admitted && needs > o.Remaining:
		o.RetryAfter = leaves(needs - o.Remaining)
	case used > 0:
		o.MoreAfter = leaves(1)
	}
	return o
}

// TestBanAgainstDefinition strikes by refusals of another rule and by costs.
func TestBanAgainstDefinition(t *testing.T) {
	race.Skip(t)
	n, bars, levels := stories(1_500), 0, 0
	for i := range n {
		random := rand.New(rand.NewPCG(8, uint64(i)))
		pick := func(numbers ...int64) int64 { return numbers[random.IntN(len(numbers))] }
		q := Quota{Algorithm: Ban, Limit: 1 + random.Int64N(5), Window: MinWindow + random.Int64N(2_000), Bar: MinWindow + random.Int64N(3_000)}
		q.MaxBar = pick(0, q.Bar, q.Bar+random.Int64N(10*q.Bar))
		if err := q.Validate(); err != nil {
			t.Fatal(err)
		}
		plain, state, now := &plainBan{q: q}, NewState(Ban), int64(1_000_000)
		var last Outcome
		for range 120 {
			now += pick(0, 1, q.Window/4, q.Window, q.Bar, 2*q.Bar, last.RetryAfter, max(1, last.RetryAfter)-1, plain.longest(), random.Int64N(4_000))
			cost := pick(0, 0, 0, 1, 1, 2, q.Limit, q.Limit+1)
			// A rule that refuses, or not; and another ban, which bars now and then.
			other, otherBan := NewState(SlidingLog), NewState(Ban)
			refuses, bans := random.IntN(2) == 0, random.IntN(8) == 0
			if refuses {
				other.Advance(&Quota{Limit: 1, Window: q.Window}, now)
				other.Take(1, 0)
			}
			barring := Quota{Algorithm: Ban, Limit: 1, Window: q.Window, Bar: q.Bar}
			if bans {
				otherBan.Advance(&barring, now)
				otherBan.Take(1, 0)
			}
			charges := []Charge{{Quota: Quota{Limit: 1, Window: q.Window}, Cost: 1}, {Quota: q, Cost: cost}, {Quota: barring}}

			needs := max(1, cost)
			fits := plain.barredUntil(now) == 0 && needs <= q.Limit-int64(len(plain.counting(now)))
			allowed := fits && !refuses && !bans
			switch {
			case allowed:
				for range cost {
					plain.strike(now)
				}
			case fits && !bans:
				plain.strike(now)
			}
			before := state.Clone()
			d := Decide(now, charges, []State{other, state, otherBan})
			want := plain.outcome(now, needs, allowed)
			if got := d.Outcomes()[1]; d.Allowed != allowed || got != want {
				t.Fatalf("story %d at %d, cost %d of %+v, refused %v, barred by another %v: allowed %v, want %v\ngot  %+v\nwant %+v\n%+v",
					i, now, cost, q, refuses, bans, d.Allowed, allowed, got, want, plain)
			}
			if !allowed && (!fits || bans) {
				if before.Advance(&q, now); !reflect.DeepEqual(before, state) {
					t.Fatalf("story %d: what a ban refuses has left a trace", i)
				}
			}
			last = d.Outcomes()[1]
			last.RetryAfter = max(0, last.RetryAfter)
		}
		bars += len(plain.bars)
		for _, b := range plain.bars {
			if b.ends-b.begins > q.Bar {
				levels++
			}
		}
	}
	t.Logf("%d stories, %d bars, %d of them longer than the first", n, bars, levels)
	if bars == 0 || levels == 0 {
		t.Error("no bars")
	}
}

func strikes(t *testing.T, state State, q Quota, now int64, n int) (last Decision) {
	t.Helper()
	for range n {
		last = Decide(now, []Charge{{Quota: q, Cost: 1}}, []State{state})
	}
	return last
}

func barredFor(state State, q Quota, now int64) int64 {
	d := Decide(now, []Charge{{Quota: q}}, []State{state})
	return d.RetryAfter()
}

// TestBanUnderAnything changes quotas, gives strikes back and sets the clock back: a
// bar is never longer than the longest, and a state never breaks or grows.
func TestBanUnderAnything(t *testing.T) {
	for i := range stories(1_000) {
		random := rand.New(rand.NewPCG(9, uint64(i)))
		state, now := NewState(Ban), int64(1_000_000)
		var q Quota
		change := func() {
			q = Quota{Algorithm: Ban, Limit: 1 + random.Int64N(5), Window: MinWindow + random.Int64N(2_000), Bar: MinWindow + random.Int64N(3_000)}
			q.MaxBar = random.Int64N(2) * q.Bar * 3
		}
		change()
		for range 60 {
			switch random.IntN(8) {
			case 0:
				change()
			case 1:
				barred := barredFor(state, q, now)
				now -= random.Int64N(5_000)
				if after := barredFor(state, q, now); barred > 0 && after == 0 {
					t.Fatalf("story %d: a clock that steps back has ended a bar", i)
				}
			case 2:
				r := Return{Charge: Charge{Quota: q, Cost: 1 + random.Int64N(3)}, At: max(0, now-random.Int64N(100))}
				state.Return(&r, now)
			default:
				now += random.Int64N(1_000)
			}
			strikes(t, state, q, now, random.IntN(2))
			if got := barredFor(state, q, now); got < 0 || got > q.longestBar() {
				t.Fatalf("story %d: barred for %d by %+v", i, got, q)
			}
			if n := len(state.(*banState).strikes); n > 5 || !slices.IsSorted(state.(*banState).strikes) {
				t.Fatalf("story %d: %d strikes", i, n)
			}
		}
	}
}

// TestBanReturn gives strikes back while they have not barred the key.
func TestBanReturn(t *testing.T) {
	q := Quota{Algorithm: Ban, Limit: 5, Window: 10_000, Bar: 10_000}
	state := NewState(Ban)
	give := func(at, cost, now, want int64) {
		t.Helper()
		r := Return{Charge: Charge{Quota: q, Cost: cost}, At: at}
		if got := state.Return(&r, now); got != want {
			t.Errorf("%d given back, want %d", got, want)
		}
	}
	strikes(t, state, q, 1_000, 2)
	strikes(t, state, q, 2_000, 2)
	give(1_000, 1, 3_000, 1)
	give(1_000, 2, 3_000, 1)
	give(1_000, 1, 3_000, 0)
	give(2_000, 1, 12_000, 0)
	strikes(t, state, q, 3_000, 3)
	give(2_000, 2, 3_000, 0)
	if got := barredFor(state, q, 3_000); got != 10_000 {
		t.Errorf("barred for %d", got)
	}
}
