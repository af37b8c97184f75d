package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/routelimit/limit/core"
)

// kathmandu is a zone whose days and hours begin in the middle of those of UTC.
var kathmandu = time.FixedZone("+0545", (5*60+45)*60)

// someAlgorithm returns any algorithm, the exact window as often as all others,
// and leases more often, to which more is done.
func someAlgorithm(random *rand.Rand) core.Algorithm {
	if random.IntN(2) == 0 {
		return core.SlidingLog
	}
	if random.IntN(4) == 0 {
		return core.Concurrency
	}
	return core.FixedWindow + core.Algorithm(random.IntN(int(core.Queue)))
}

// algorithmNamed returns the algorithm of a word.
func algorithmNamed(t *testing.T, word string) core.Algorithm {
	for a := core.SlidingLog; a <= core.Concurrency; a++ {
		if a.String() == word {
			return a
		}
	}
	t.Fatalf("LIMIT_ALGORITHM=%q: write a word such as %v", word, core.SlidingLog)
	return 0
}

// someQuota returns a quota, of the algorithm in LIMIT_ALGORITHM or of any.
func someQuota(t *testing.T, random *rand.Rand) core.Quota {
	q := core.Quota{Limit: pick(random, someLimits), Window: pick(random, someWindows)}
	q.Algorithm = someAlgorithm(random)
	if word := os.Getenv("LIMIT_ALGORITHM"); word != "" {
		q.Algorithm = algorithmNamed(t, word)
	}
	switch q.Algorithm {
	case core.FixedWindow:
		switch random.IntN(3) {
		case 0:
			q.Aligned = true
		case 1:
			q.Calendar = core.Calendar{Unit: core.Hour + core.CalendarUnit(random.IntN(4)), Zone: kathmandu}
		}
	case core.SlidingCells:
		q.Cells = pick(random, []int64{2, 3, 10, core.MaxCells})
	case core.TokenBucket:
		q.Burst = pick(random, someLimits)
		q.Missing = pick(random, []int64{0, 0, 1, q.Burst})
	case core.LeakyBucket:
		q.Burst = pick(random, someLimits)
	case core.Queue:
		q.Burst = pick(random, someLimits) - 1
		q.MaxWait = pick(random, []int64{0, 1, q.Window / 2, 3 * q.Window})
	}
	return q
}

// change changes the limit or the burst of a rule.
func (s *schedule) change() {
	s.settle()
	q := &s.rules[s.random.IntN(len(s.rules))].Quota
	if q.Burst > 0 && s.random.IntN(2) == 0 {
		q.Burst = max(q.Missing, pick(s.random, someLimits))
		return
	}
	q.Limit = pick(s.random, someLimits)
}

// settle charges the keys that are whole again. Whether a store still knows
// what they spent is its own affair, and must not show when the clock steps
// back to where it counted, or when a change would make it count.
func (s *schedule) settle() {
	for _, rule := range s.rules {
		for key := range s.keys {
			c := rule
			c.Key, c.Cost = fmt.Sprint("k", key), 1
			named := s.current([]core.Charge{c})[0]
			if state := s.states[named.Rule+named.Key]; state != nil && state.Expires() <= s.now {
				s.take([]core.Charge{c})
			}
		}
	}
}

// current gives new names to the keys of buckets that begin with tokens missing
// and that a store may have forgotten: forgotten ones would begin so again, and
// others be full.
func (s *schedule) current(charges []core.Charge) []core.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		c := &charges[i]
		if c.Quota.Missing == 0 {
			continue
		}
		key := c.Key
		c.Key = fmt.Sprint(key, ".", s.retired[c.Rule+key])
		if state := s.states[c.Rule+c.Key]; state != nil && state.Expires() <= s.now && state.Expires() > 0 {
			s.retired[c.Rule+key]++
			s.retires++
			c.Key = fmt.Sprint(key, ".", s.retired[c.Rule+key])
		}
	}
	return charges
}
