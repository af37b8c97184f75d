package limit

import "github.com/routelimit/limit/core"

// Stats is what a [Limiter] does at a moment, and what it has done since it was made.
type Stats struct {
	// Waiters is how many requests wait for room now, over all policies: calls of
	// [Policy.Wait], and HTTP requests whose rules let them wait. Requests that have
	// a slot in a [Queue] are not counted.
	Waiters int64

	// Unavailable reports whether the breaker of the store is open, so that requests
	// are decided as [Rule].OnStoreError says. It is false for a memory store.
	Unavailable bool

	// Blocked is how many requests were decided as [Rule].OnStoreError says although the
	// store works: all connections to it were in use, or its user lacks a right.
	Blocked int64

	// Reserved is how many requests [Policy.Reserve] has admitted, and Settled how many
	// of them were settled or given back. The difference is in use or was never
	// settled, and stays charged.
	Reserved, Settled int64
}

// Stats returns the state of the limiter. It does not block, and is safe for concurrent
// use. Its fields are read one after the other.
func (l *Limiter) Stats() Stats {
	reserved, settled := l.engine.Reservations()
	return Stats{
		Waiters:     l.engine.Queues.Len(),
		Unavailable: core.Unavailable(l.engine.Store),
		Blocked:     core.Blocked(l.engine.Store),
		Reserved:    reserved,
		Settled:     settled,
	}
}
