package core

import (
	"context"
	"time"
)

// A Diagnosis is an error about how a program is set up or what surrounds it, rather
// than about a request. Find it with [errors.As]. Code names the kind of the problem
// and never changes its meaning: docs/diagnostics.md explains each.
type Diagnosis struct {
	Code string // such as "LIMIT-304"
	Err  error  // what is wrong, where, and what to write instead
}

func (d *Diagnosis) Error() string { return d.Code + ": " + d.Err.Error() }

// Unwrap returns d.Err.
func (d *Diagnosis) Unwrap() error { return d.Err }

// Check asks a store whether it can decide, by its method Check(context.Context) error, and returns
// nil if it has none. The error joins one [*Diagnosis] for each problem, or is that of ctx if it
// was canceled. The method changes no quota, ends with ctx, and is safe for concurrent use. A store
// that wraps another one passes the call on.
func Check(ctx context.Context, store Store) error {
	if s, ok := store.(interface{ Check(context.Context) error }); ok {
		return s.Check(ctx)
	}
	return nil
}

// A Condition is what package guard says about the store that it guards.
type Condition struct {
	// Unavailable says that requests are decided without the store: the breaker is open, or one
	// was decided so less than half a second ago.
	Unavailable bool

	// Since and Until are when the first and the last request of the latest outage were decided
	// without the store. They are zero before the first outage. An outage ends when the store
	// has decided all requests for 5 s; Outages counts them.
	Since, Until time.Time
	Outages      int64

	// Owed is how many units were admitted without the store that it is not charged for yet, and
	// Paid how many it was charged for afterwards. A payment of Repeated of these failed before,
	// maybe after it had charged them, so they may count twice.
	Owed, Paid, Repeated int64

	// Lost is when the store was last found to have lost data, and zero if never. The processes
	// charge it for what they know. For a window after that, this one also refuses what its own
	// counts of leases, values and bans refuse.
	Lost time.Time

	// Doubted is when this process last admitted more without the store than it can charge it
	// for, and zero if never: it owed for too many keys, or the store does not report lost data.
	// For a window of each rule after that, it also refuses what its own counts refuse.
	Doubted time.Time

	// Blocked is how many requests were decided without a store that works: see [ErrBlocked].
	Blocked int64
}

// ConditionOf returns what the store's method Condition() Condition does, or the zero Condition.
// The method does not block, and is safe for concurrent use. A store that wraps another one passes
// the call on.
func ConditionOf(store Store) Condition {
	if s, ok := store.(interface{ Condition() Condition }); ok {
		return s.Condition()
	}
	return Condition{}
}
