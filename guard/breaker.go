package guard

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// What opens a breaker, and when it closes, in microseconds.
const (
	failuresToOpen = 5                    // in a row
	callsCounted   = 20                   // the last ones
	slowToOpen     = callsCounted / 2     // of these
	firstWait      = 25_000               // until the first probe; each is twice as long as the one before
	longestWait    = 250_000              // at most
	closed         = int64(0)             // a value of breaker.until
	probing        = int64(math.MaxInt64) // another one
)

// A result is what a call tells of the store.
type result uint8

const (
	silent   result = iota // nothing: the caller went away, or asked for nonsense
	answered               // it works
	slow                   // it works, but too slowly
	failed                 // it does not
)

// A breaker keeps calls from a store that fails. It opens after failures in a
// row, or when half of the last calls were slow. While it is open one call at a
// time finds out whether the store is back, and one success is enough: should
// that be too early, a few calls open it again. It is safe for concurrent use,
// and knows no clock: times are in microseconds, and not 0.
//
// The method is the circuit breaker of Nygard, "Release It!" (2007).
type breaker struct {
	until   atomic.Int64 // closed, probing, or when the next probe may go
	trouble atomic.Bool  // whether there is anything to forget

	mu       sync.Mutex
	failures int
	slows    uint32 // a bit for each of the last calls
	wait     int64  // before the next probe, if the last one failed
}

// enter reports whether a call may go, and whether it is a probe. Each that may
// must leave.
func (b *breaker) enter(now int64) (may, probe bool) {
	until := b.until.Load()
	if until == closed {
		return true, false
	}
	probe = now >= until && b.until.CompareAndSwap(until, probing)
	return probe, probe
}

// leave says how a call went.
func (b *breaker) leave(now int64, probe bool, r result) {
	if !probe && (r == silent || r == answered && !b.trouble.Load()) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case probe && r == silent:
		b.until.Store(now) // the next one may go at once
	case probe && r == answered:
		b.failures, b.slows, b.wait = 0, 0, 0
		b.until.Store(closed)
	case probe:
		b.open(now)
	case b.until.Load() != closed:
		// A call from before: the probes know better.
		return
	default:
		b.count(r)
		if b.failures >= failuresToOpen || bits.OnesCount32(b.slows) >= slowToOpen {
			b.open(now)
		}
	}
	b.trouble.Store(b.failures > 0 || b.slows > 0)
}

// count remembers how a call went.
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
