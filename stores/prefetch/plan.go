package prefetch

import "github.com/routelimit/limit/core"

const (
	minHold = 1_000     // µs; a shorter time ends before a call has answered
	maxHold = 1_000_000 // µs, by default
)

// A plan says how the permits of a quota are taken.
type plan struct {
	quota   core.Quota // of the requests
	charged core.Quota // what the store is charged with
	hold    int64      // µs for which a permit can be handed out, at most; 0 if none can
}

// planOf returns the plan of a quota. A unit that the store admits at T is handed
// out until T + hold, and must count as if it had been admitted then:
//
//   - A sliding log counts it for longer: its window is wider by hold.
//   - A bucket is smaller by what refills in hold. Units that are handed out in some
//     time t were taken in t + hold.
//   - The other windows count it by the window, or cell, that it falls into. So it
//     is handed out within the same: see lasts.
//
// A queue gives each unit its own time, and a lease is an id: neither has permits.
func planOf(q core.Quota, hold int64) *plan {
	p := &plan{quota: q, charged: q, hold: hold}
	if hold == 0 {
		p.hold = min(q.Window/100, maxHold)
	}
	switch q.Algorithm {
	case core.SlidingLog:
		p.charged.Window += p.hold
	case core.TokenBucket, core.LeakyBucket:
		refilled, _ := core.MulDiv(p.hold, q.Limit, q.Window)
		p.charged.Burst -= refilled + 1
		if q.Missing > 0 || p.charged.Burst < q.Burst/2 {
			p.hold = 0
		}
	case core.FixedWindow, core.SlidingCells, core.SlidingCounter:
	default:
		p.hold = 0
	}
	if p.hold < minHold || p.charged.Validate() != nil {
		p.charged, p.hold = q, 0
	}
	return p
}

// lasts returns how long permits can be handed out that the store took at a time, with an outcome.
func (p *plan) lasts(at int64, o core.Outcome) int64 {
	q := &p.charged
	switch q.Algorithm {
	case core.FixedWindow:
		return min(p.hold, o.ResetAfter)
	case core.SlidingCells:
		length := core.CeilDiv(q.Window, q.Cells)
		return min(p.hold, length-at%length)
	case core.SlidingCounter:
		return min(p.hold, q.Window-at%q.Window)
	}
	return p.hold
}
