package telemetry

import (
	"slices"
	"sync"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
)

// Limiters is a set of limiters whose metrics are added up. The zero Limiters is empty
// and ready to use. It is safe for concurrent use.
type Limiters struct {
	mu   sync.Mutex
	list []*limit.Limiter
}

// Add adds a limiter, once.
func (l *Limiters) Add(limiter *limit.Limiter) {
	if limiter == nil {
		panic("limit: the limiter is nil: make it with limit.New")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.list, limiter) {
		l.list = append(l.list, limiter)
	}
}

// Values returns the values of [OfLimiters].
func (l *Limiters) Values() (values [11]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, limiter := range l.list {
		stats := operate.ReadStats(limiter)
		if stats.Unavailable {
			values[1]++
		}
		for i, n := range [...]int64{stats.Waiters, 0, stats.Blocked, stats.Outages, stats.Owed, stats.Paid, stats.Reserved, stats.Settled, stats.Forgiven, stats.Ended, stats.Unheld} {
			values[i] += n
		}
	}
	return values
}
