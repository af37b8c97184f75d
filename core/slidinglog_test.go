package core

import (
	"slices"
	"testing"
)

// TestLogEdges walks through one log, time by time, with numbers that are not computed:
// TestLogAgainstDefinition finds the other edges by comparison.
func TestLogEdges(t *testing.T) {
	const ms = 1_000
	two, five := Quota{Limit: 2, Window: 10 * ms}, Quota{Limit: 5, Window: 10 * ms}
	brief := Quota{Limit: 5, Window: 2 * ms}
	ok := func(remaining, more, reset int64) Outcome {
		return Outcome{Remaining: remaining, MoreAfter: more, ResetAfter: reset}
	}
	no := func(remaining, retry, reset int64) Outcome {
		return Outcome{Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
	}
	type row struct {
		at    int64
		quota Quota
		cost  int64
		want  Outcome
	}
	for name, rows := range map[string][]row{
		"a unit counts for its window and not at its end": {
			{0, two, 1, ok(1, 10*ms, 10*ms)},
			{4 * ms, two, 1, ok(0, 6*ms, 10*ms)},
			{10*ms - 1, two, 1, no(0, 1, 4*ms+1)},
			{10 * ms, two, 1, ok(0, 4*ms, 10*ms)},
			{14*ms - 1, two, 1, no(0, 1, 6*ms+1)},
			{14 * ms, two, 1, ok(0, 6*ms, 10*ms)},
			{24*ms - 1, two, 0, ok(1, 1, 1)},
			{24 * ms, two, 0, ok(2, 0, 0)},
		},
		"a cost above the limit never fits": {
			{0, two, 3, no(2, Never, 0)},
			{0, two, 2, ok(0, 10*ms, 10*ms)},
			{1 * ms, two, 3, no(0, Never, 9*ms)},
			{1 * ms, two, MaxCost, no(0, Never, 9*ms)},
		},
		"units ahead of now are dated now": {
			{20 * ms, five, 1, ok(4, 10*ms, 10*ms)},
			{30*ms - 1, five, 2, ok(2, 1, 10*ms)},
			{25 * ms, five, 0, ok(2, 5*ms, 10*ms)},
			{30 * ms, five, 0, ok(3, 5*ms, 5*ms)},
			{3 * ms, five, 2, ok(0, 10*ms, 10*ms)},
			{13*ms - 1, five, 1, no(0, 1, 1)},
			{13 * ms, five, 5, ok(0, 10*ms, 10*ms)},
		},
		"two versions in turn": {
			{0, five, 1, ok(4, 10*ms, 10*ms)},
			{1 * ms, brief, 4, ok(0, 1*ms, 2*ms)},
			{3 * ms, brief, 4, ok(1, 2*ms, 2*ms)},
			{3 * ms, five, 1, no(0, 8*ms, 10*ms)},
			{10 * ms, five, 1, no(0, 1*ms, 3*ms)},
			{11 * ms, two, 1, no(0, 2*ms, 2*ms)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := NewState(SlidingLog)
			for i, r := range rows {
				c := []Charge{{Quota: r.quota, Cost: r.cost}}
				d := Decide(r.at, c, []State{state})
				if got := d.Outcomes()[0]; got != r.want || d.Allowed != r.want.Fits() {
					t.Errorf("row %d, at %d:\ngot  %+v\nwant %+v", i, r.at, got, r.want)
				}
			}
		})
	}
}

func TestLogExpires(t *testing.T) {
	q := Quota{Limit: 3, Window: 1_000}
	l := &Log{}
	if got := l.Expires(); got > 0 {
		t.Errorf("a new log expires at %d, want in the past", got)
	}
	l.Advance(&q, 5_000)
	l.Take(1, 0)
	l.Advance(&q, 5_400)
	l.Take(1, 0)
	if got := l.Expires(); got != 6_400 {
		t.Errorf("expires at %d, want 6400", got)
	}
	l.Advance(&q, 5_100) // the clock steps back
	if got := l.Expires(); got != 6_100 {
		t.Errorf("expires at %d after the clock stepped back, want 6100", got)
	}
}

// TestLogGrowth tests that a log takes the memory of what it holds, and never
// that of more than its limit.
func TestLogGrowth(t *testing.T) {
	q := Quota{Limit: 100, Window: 1_000}
	l := &Log{}
	for now := range int64(10_000) {
		if l.Advance(&q, now) >= 1 {
			l.Take(1, 0)
		}
		if held, room := int(l.size), l.room(); room > 2*held || room > 100 {
			t.Fatalf("room for %d times, of which there are %d", room, held)
		}
	}
	l.Advance(&q, 20_000)
	l.Take(q.Limit, 0)
	if room := l.room(); room != 100 {
		t.Errorf("room for %d times, want 100", room)
	}
}

// room returns how many times l has memory for.
func (l *Log) room() int {
	if l.ring == nil {
		return 1
	}
	return len(*l.ring)
}

// TestDecideLeavesNoTrace tests that a decision that takes nothing can be left
// out, wherever the clock goes afterwards.
func TestDecideLeavesNoTrace(t *testing.T) {
	q := Quota{Limit: 3, Window: 1_000}
	history := func(between ...int64) []Decision {
		state := []State{NewState(SlidingLog)}
		var after []Decision
		for _, at := range []int64{10_000, 10_400, 10_800} {
			Decide(at, []Charge{{Quota: q, Cost: 1}}, state)
		}
		for _, at := range between {
			Decide(at, []Charge{{Quota: q, Cost: 0}}, state)
			Decide(at, []Charge{{Quota: q, Cost: 4}}, state)
		}
		for _, at := range []int64{10_900, 11_100, 11_500} {
			after = append(after, Decide(at, []Charge{{Quota: q, Cost: 1}}, state))
		}
		return after
	}
	want := history()
	if got := history(11_000, 11_399, 11_400, 11_799, 11_800, 99_999); !slices.EqualFunc(got, want, sameDecision) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func sameDecision(a, b Decision) bool {
	return a.Allowed == b.Allowed && a.At == b.At && slices.Equal(a.Outcomes(), b.Outcomes())
}
