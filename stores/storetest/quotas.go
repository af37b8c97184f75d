package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/routelimit/limit/core"
)

// kathmandu is a zone with days and hours that begin in the middle of UTC's.
var kathmandu = time.FixedZone("+0545", (5*60+45)*60)

// someAlgorithm returns any algorithm: half of the time the exact window, and often
// leases, which have more operations.
func someAlgorithm(random *rand.Rand) core.Algorithm {
	var leases, others []core.Algorithm
	for _, a := range core.Algorithms() {
		switch q := (core.Quota{Algorithm: a}); {
		case q.Leases():
			leases = append(leases, a)
		case a != core.SlidingLog:
			others = append(others, a)
		}
	}
	switch {
	case random.IntN(2) == 0:
		return core.SlidingLog
	case random.IntN(4) == 0:
		return pick(random, leases)
	}
	return pick(random, others)
}

// someQuota returns a quota of an algorithm, or of that in LIMIT_ALGORITHM.
func someQuota(t *testing.T, random *rand.Rand, a core.Algorithm) core.Quota {
	if word := os.Getenv("LIMIT_ALGORITHM"); word != "" {
		var ok bool
		if a, ok = core.ParseAlgorithm(word); !ok {
			t.Fatalf("LIMIT_ALGORITHM=%q: write a word such as %v", word, core.SlidingLog)
		}
	}
	q := plainQuota(a, someLimit(random, a), pick(random, someWindows))
	fields := a.Fields()
	if fields.Has(core.FieldBurst) {
		if q.Burst = pick(random, someLimits) - 1; q.Validate() != nil {
			q.Burst++
		}
	}
	if fields.Has(core.FieldMissing) {
		q.Missing = pick(random, []int64{0, 0, 1, q.Burst})
	}
	if fields.Has(core.FieldCells) {
		q.Cells = pick(random, []int64{2, 3, 10, core.MaxCells})
	}
	if fields.Has(core.FieldMaxWait) {
		q.MaxWait = pick(random, []int64{0, 1, q.Window / 2, 3 * q.Window})
	}
	if fields.Has(core.FieldBar) {
		q.Bar = pick(random, someWindows)
		q.MaxBar = pick(random, []int64{0, q.Bar, 2 * q.Bar, 9 * q.Bar})
	}
	switch choice := random.IntN(3); {
	case choice == 0 && fields.Has(core.FieldAligned):
		q.Aligned = true
	case choice == 1 && fields.Has(core.FieldCalendar):
		q.Calendar = core.Calendar{Unit: core.Hour + core.CalendarUnit(random.IntN(4)), Zone: kathmandu}
		q.Window = q.Calendar.Unit.Usual()
	}
	return q
}

// plainQuota returns a quota of any algorithm, with what it needs beside a limit
// and a window.
func plainQuota(a core.Algorithm, limit, window int64) core.Quota {
	q := core.Quota{Algorithm: a, Limit: min(limit, a.MaxLimit()), Window: window}
	if a.Fields().Has(core.FieldCells) {
		q.Cells = 10
	}
	if a.Fields().Has(core.FieldBurst) {
		q.Burst = limit
	}
	if a.Fields().Has(core.FieldBar) {
		q.Bar = window
	}
	return q
}

// ofAlgorithm returns a quota of an algorithm, with some burst, or with windows on the clock.
func ofAlgorithm(random *rand.Rand, a core.Algorithm, limit, window int64) core.Quota {
	q := plainQuota(a, limit, window)
	if a.Fields().Has(core.FieldBurst) {
		q.Burst = pick(random, []int64{1, limit, 2 * limit})
	}
	if a.Fields().Has(core.FieldAligned) {
		q.Aligned = random.IntN(2) == 0
	}
	return q
}

// change changes the limit or the burst of a rule.
func (s *schedule) change() {
	s.settle()
	defer s.lookAtBuckets()
	q := &s.rules[s.random.IntN(len(s.rules))].Quota
	if q.Burst > 0 && s.random.IntN(2) == 0 {
		q.Burst = max(q.Missing, pick(s.random, someLimits))
		return
	}
	q.Limit = someLimit(s.random, q.Algorithm)
}

// someLimit returns a limit that quotas of an algorithm may have.
func someLimit(random *rand.Rand, a core.Algorithm) int64 {
	return min(pick(random, someLimits), a.MaxLimit())
}

// alternate gives each rule the limit of another caller: the usual one, a tenth of it, or
// ten times as much. What follows the limit by default follows this one.
func (s *schedule) alternate() {
	s.settle()
	defer s.lookAtBuckets()
	if s.usual == nil {
		for _, rule := range s.rules {
			s.usual = append(s.usual, rule.Quota)
		}
	}
	for i, usual := range s.usual {
		other := usual
		switch s.random.IntN(3) {
		case 0:
			other.Limit = max(1, usual.Limit/10)
		case 1:
			other.Limit = 10 * usual.Limit
		}
		if other.Refills() && !other.Queues() && usual.Burst == usual.Limit {
			other.Burst = other.Limit
			other.Missing = min(other.Missing, other.Burst)
		}
		if other.Validate() == nil {
			s.rules[i].Quota = other
		}
	}
}

// lookAtBuckets looks at the buckets and queues whose quota may have changed. A store may
// forget a key when it is full by the quota of its last call, which may be earlier now.
func (s *schedule) lookAtBuckets() {
	for _, rule := range s.rules {
		for key := range s.keys {
			c := rule
			c.Key, c.Cost = fmt.Sprint("k", key), 0
			if c.Quota.Refills() && s.states[nameOf(c)] != nil {
				s.take(c)
			}
		}
	}
}

// settle charges the keys that are full again. A store may or may not have forgotten
// what they spent. That must not show when the clock steps back to where it counted,
// or when a change would make it count.
func (s *schedule) settle() {
	for _, rule := range s.rules {
		for key := range s.keys {
			c := rule
			c.Key, c.Cost = fmt.Sprint("k", key), 1
			if c.Quota.Algorithm == core.Distinct {
				c.ID = 1
			}
			state := s.states[nameOf(c)]
			if state == nil {
				continue
			}
			probe := state.Clone() // a full bucket may be remembered for its debts, or for what was given back to it
			probe.Advance(&c.Quota, s.now)
			asNew := core.Look(s.now, c, probe) == core.Look(s.now, c, core.NewState(c.Quota.Algorithm))
			if asNew || probe.Used() == 0 || state.Expires() <= s.now {
				s.take(c)
			}
		}
	}
}
