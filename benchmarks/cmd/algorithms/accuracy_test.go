package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

func TestMostWithinIsHalfOpen(t *testing.T) {
	for _, c := range []struct {
		times []int64
		want  int
	}{
		{nil, 0},
		{[]int64{5}, 1},
		{[]int64{0, 10}, 1},
		{[]int64{0, 9, 10}, 2},
		{[]int64{0, 0, 9, 9, 10, 18, 19, 30}, 4},
	} {
		if got := mostWithin(c.times, 10); got != c.want {
			t.Errorf("most of %v within 10 is %d, not %d", c.times, got, c.want)
		}
	}
}

// TestFitsCountsAllWindows compares fits with a full count, including units in the
// future as those of a queue.
func TestFitsCountsAllWindows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var h history
	seen := map[bool]int{}
	at, last := start, start
	for range 5_000 {
		at += r.Int64N(window / 50)
		times := append([]int64{}, h.times...)
		i := len(times)
		for i > 0 && times[i-1] > at {
			i--
		}
		times = append(times[:i], append([]int64{at}, times[i:]...)...)
		first, end := i, i
		for first > 0 && times[first-1] > at-window {
			first--
		}
		for end < len(times) && times[end] < at+window {
			end++
		}
		want := true
		for from := first; from <= i; from++ {
			n := 0
			for _, u := range times[from:end] {
				if u < times[from]+window {
					n++
				}
			}
			want = want && n <= limit
		}
		if got := h.fits(at); got != want {
			t.Fatalf("fits(%d) is %v", at-start, got)
		}
		seen[want]++
		if last = max(last, at) + r.Int64N(window/60); last < at+window {
			h.add(last)
		} else {
			last = max(at, h.times[len(h.times)-1])
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("too few of a kind: %v", seen)
	}
}

var all = append(slices.Clone(adversarial), traffic)

func TestSlidingLogIsNeverWrong(t *testing.T) {
	q := core.Quota{Algorithm: core.SlidingLog, Limit: limit, Window: window}
	for i, next := range all {
		a := measure(q, []round{next}, 5000)
		if a.Over+a.Under > 0 || a.Most != limit {
			t.Errorf("schedule %d: %d over, %d under, most %d", i, a.Over, a.Under, a.Most)
		}
	}
}

func TestSchedulesAscend(t *testing.T) {
	for i, next := range all {
		k := newKey(core.Quota{Algorithm: core.SlidingLog, Limit: limit, Window: window})
		r := rand.New(rand.NewPCG(1, 0))
		last, n := start, 0
		for at := start; n < 5000; {
			at = next(r, at, func(at int64) core.Decision {
				if at < last {
					t.Fatalf("schedule %d steps back by %d µs", i, last-at)
				}
				last, n = at, n+1
				return k.ask(at)
			})
		}
	}
}

func TestPercent(t *testing.T) {
	for n, want := range map[int]string{0: "0", 1: "<0.01 %", 1234: "1.23 %"} {
		if got := percent(n, 100_000); got != want {
			t.Errorf("%d of 100,000 is %q, not %q", n, got, want)
		}
	}
}
