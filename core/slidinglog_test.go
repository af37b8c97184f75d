package core

import (
	"slices"
	"testing"
)

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
