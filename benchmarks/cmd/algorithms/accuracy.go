package main

import (
	"math/rand/v2"

	"github.com/routelimit/limit/core"
)

// An accuracy is the result of one algorithm on some schedules.
type accuracy struct {
	asked    int
	admitted int
	over     int // admitted, though a window then held more than the limit
	under    int // refused, though no window would have
	most     int // units in one window
	worst    string
	delay    int64 // µs, of all that were admitted
	times    []int64
}

// measure runs a schedule of at least n requests on one key.
func measure(q core.Quota, s schedule, seed uint64, n int) accuracy {
	var a accuracy
	var h history
	k := newKey(q)
	ask := func(at int64) core.Decision {
		d := k.ask(at)
		a.asked++
		if !d.Allowed {
			if h.fits(at) {
				a.under++
			}
			return d
		}
		a.admitted++
		a.delay += d.Delay
		if !h.fits(at + d.Delay) {
			a.over++
		}
		h.add(at + d.Delay)
		return d
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for at := start; a.asked < n; {
		at = s.round(r, at, ask)
	}
	a.most, a.worst, a.times = mostWithin(h.times, window), s.name, h.times
	return a
}

// measureAll runs schedules of at least n requests together.
func measureAll(q core.Quota, schedules []schedule, n int) accuracy {
	var all accuracy
	for i, s := range schedules {
		a := measure(q, s, uint64(i+1), (n+len(schedules)-1)/len(schedules))
		all.asked += a.asked
		all.admitted += a.admitted
		all.over += a.over
		all.under += a.under
		all.delay += a.delay
		if a.most > all.most {
			all.most, all.worst = a.most, a.worst
		}
	}
	return all
}
