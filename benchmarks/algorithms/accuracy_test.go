package algorithms

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// An accuracy is the result of one algorithm on some schedules.
type accuracy struct {
	Asked    int
	admitted int
	Over     int   // admitted, though a window then held more than the limit
	Under    int   // refused, though no window would have
	Most     int   // units in one window
	delay    int64 // µs, of all that were admitted
}

// measure decides schedules of at least n requests together, each on a key of its own.
func measure(q core.Quota, schedules []round, n int) (a accuracy) {
	for i, next := range schedules {
		var h history
		k := newKey(q)
		ask := func(at int64) core.Decision {
			d := k.ask(at)
			a.Asked++
			if !d.Allowed {
				if h.fits(at) {
					a.Under++
				}
				return d
			}
			a.admitted++
			a.delay += d.Delay
			if !h.fits(at + d.Delay) {
				a.Over++
			}
			h.add(at + d.Delay)
			return d
		}
		r := rand.New(rand.NewPCG(uint64(i+1), 0))
		enough := a.Asked + (n+len(schedules)-1)/len(schedules)
		for at := start; a.Asked < enough; {
			at = next(r, at, ask)
		}
		a.Most = max(a.Most, mostWithin(h.times, window))
	}
	return a
}

// A history is the times of the units that an algorithm admitted, in ascending order. In
// a queue, they are the times of the slots.
type history struct {
	times []int64
	left  int // of these, how many had left the window at the last time asked for
}

// fits reports whether one more unit at the given time would leave at most the limit in
// each half-open window. This is exact for any history. The times passed do not step back
// by a window or more.
func (h *history) fits(at int64) bool {
	for h.left > 0 && h.times[h.left-1] > at-window {
		h.left-- // the slots of a queue are ahead of its next refusal
	}
	for h.left < len(h.times) && h.times[h.left] <= at-window {
		h.left++
	}
	near := h.times[h.left:]
	end := 0 // of the window that begins at near[i]
	for i, from := range near {
		if from > at {
			break
		}
		for end < len(near) && near[end] < from+window {
			end++
		}
		if end-i+1 > limit {
			return false
		}
		if end == len(near) { // the windows that begin later hold less
			break
		}
	}
	ahead, _ := slices.BinarySearch(near, at)
	within, _ := slices.BinarySearch(near, at+window)
	return within-ahead+1 <= limit
}

func (h *history) add(at int64) { h.times = append(h.times, at) }

// mostWithin returns the largest number of the ascending times in any half-open window of
// the given length.
func mostWithin(times []int64, length int64) int {
	most, first := 0, 0
	for i, at := range times {
		for times[first] <= at-length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

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
