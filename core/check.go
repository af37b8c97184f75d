package core

import "context"

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

// Check asks a store whether it can decide: it calls the store's method
// Check(context.Context) error, and returns nil if the store has none. The error joins
// one [*Diagnosis] for each problem, or is the error of ctx if that was canceled. The
// method changes no quota, ends with ctx, and is safe for concurrent use. A store that
// wraps another one has the method and passes the call on:
//
//	func (s *Store) Check(ctx context.Context) error { return core.Check(ctx, s.store) }
func Check(ctx context.Context, store Store) error {
	if s, ok := store.(interface{ Check(context.Context) error }); ok {
		return s.Check(ctx)
	}
	return nil
}

// A Condition is what package guard says about the store that it guards.
type Condition struct {
	Unavailable bool  // the breaker is open: requests are decided without the store
	Outages     int64 // how often requests began to be decided without a store that had decided for 5 s
	Blocked     int64 // requests that were decided without a store that works: see [ErrBlocked]
	Owed        int64 // units that were admitted without the store, and that it is not charged for yet
	Paid        int64 // units that it was charged for afterwards
	Repeated    int64 // of Paid: the first payment had no answer, and may have been charged too
}

// ConditionOf returns what the store's method Condition() Condition does, or the zero
// Condition if the store has none. The method does not block, and is safe for concurrent use.
// A store that wraps another one has the method and passes the call on.
func ConditionOf(store Store) Condition {
	if s, ok := store.(interface{ Condition() Condition }); ok {
		return s.Condition()
	}
	return Condition{}
}
