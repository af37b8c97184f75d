package main

import (
	"math/rand/v2"
	"slices"

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
