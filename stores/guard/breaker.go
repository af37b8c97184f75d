package guard

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// When a breaker opens and closes, in microseconds.
const (
	failuresToOpen = 5                    // in a row
	callsCounted   = 20                   // the last calls
	slowToOpen     = callsCounted / 2     // of these
	firstWait      = 25_000               // until the first probe; each wait is twice as long as the one before
	longestWait    = 250_000              // at most
	closed         = int64(0)             // a value of breaker.until
	probing        = int64(math.MaxInt64) // another one
)

// A result is what a call says about the store.
type result uint8

const (
	silent   result = iota // nothing: the caller went away, or the call was invalid
	answered               // the store works
	slow                   // the store works, but too slowly
	failed                 // the store does not work
)

// A breaker stops calls to a store that fails (Nygard, "Release It!", 2007). While it is open, one
// call at a time probes the store, and the first success closes it. If that is too early, a few
// calls open it again. It is safe for concurrent use and reads no clock: times are in µs, and not
// 0.
type breaker struct {
	until   atomic.Int64 // closed, probing, or when the next probe may go
	trouble atomic.Bool  // there are failures or slow calls to count

	mu       sync.Mutex
	failures int
	slows    uint32 // a bit for each of the last calls
	wait     int64  // before the next probe, if the last one failed
}

// enter reports whether a call may go, and whether it is a probe. A call that may
// go must leave exactly once.
func (b *breaker) enter(now int64) (may, probe bool) {
	until := b.until.Load()
	if until == closed {
		return true, false
	}
	probe = now >= until && b.until.CompareAndSwap(until, probing)
	return probe, probe
}

// leave notes how a call went.
func (b *breaker) leave(now int64, probe bool, r result) {
	if !probe && (r == silent || r == answered && !b.trouble.Load()) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case probe && r == silent:
		b.until.Store(now) // the next probe may go at once
	case probe && r == answered:
		b.failures, b.slows, b.wait = 0, 0, 0
		b.until.Store(closed)
	case probe:
		b.open(now)
	case b.until.Load() != closed:
		// The call is older than the outage: only probes decide.
		return
	default:
		b.count(r)
		if b.failures >= failuresToOpen || bits.OnesCount32(b.slows) >= slowToOpen {
			b.open(now)
		}
	}
	b.trouble.Store(b.failures > 0 || b.slows > 0)
}

func (b *breaker) count(r result) {
	b.slows = b.slows << 1 & (1<<callsCounted - 1)
	switch r {
	case answered:
		b.failures = 0
	case slow:
		b.failures = 0
		b.slows |= 1
	case failed:
		b.failures++
	}
}

// open lets the next probe go after a while.
func (b *breaker) open(now int64) {
	b.wait = min(max(firstWait, 2*b.wait), longestWait)
	b.until.Store(now + b.wait)
}

// probeIn returns how long until the next probe may go.
func (b *breaker) probeIn(now int64) int64 {
	until := b.until.Load()
	if until == closed || until == probing || until <= now {
		return firstWait
	}
	return until - now
}
