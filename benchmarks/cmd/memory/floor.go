package main

import (
	"sync"
	"time"
)

// byHand is the floor of exact decisions: a log for each key and one for all, written for this
// benchmark. Like limit, it charges all rules or none. It knows no other rule, and never forgets a key.
func byHand(rules int) func(load) caller {
	return func(l load) caller {
		var keys sync.Map // of *ring
		shared, base := new(ring), time.Now()
		decide := func(key string) bool {
			found, ok := keys.Load(key)
			if !ok {
				found, _ = keys.LoadOrStore(key, new(ring))
			}
			mine, now := found.(*ring), time.Since(base)
			mine.Lock()
			defer mine.Unlock()
			if rules == 1 {
				return mine.fits(now, l.each) && mine.add(now)
			}
			shared.Lock()
			defer shared.Unlock()
			return mine.fits(now, l.each) && shared.fits(now, ample) && mine.add(now) && shared.add(now)
		}
		return func() func(string) bool { return decide }
	}
}

// A ring has the times of what a key has used. Its length is a power of two.
type ring struct {
	sync.Mutex
	first, n int
	times    []time.Duration
}

func (r *ring) fits(now time.Duration, q quota) bool {
	for r.n > 0 && r.times[r.first&(len(r.times)-1)] <= now-q.window {
		r.first++
		r.n--
	}
	return int64(r.n) < q.limit
}

func (r *ring) add(now time.Duration) bool {
	if r.n == len(r.times) {
		times := make([]time.Duration, max(1, 2*r.n))
		for i := range r.n {
			times[i] = r.times[(r.first+i)&(r.n-1)]
		}
		r.first, r.times = 0, times
	}
	r.times[(r.first+r.n)&(len(r.times)-1)] = now
	r.n++
	return true
}
