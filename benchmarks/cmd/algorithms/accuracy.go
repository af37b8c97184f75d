package main

import (
	"math/rand/v2"

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
