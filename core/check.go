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

// Unavailable reports whether requests are decided without a store because it fails: it
// calls the store's method Unavailable() bool, which package guard has, and returns
// false if the store has none. The method does not block, and is safe for concurrent
// use. A store that wraps another one has the method and passes the call on.
func Unavailable(store Store) bool {
	s, ok := store.(interface{ Unavailable() bool })
	return ok && s.Unavailable()
}

// Blocked returns how many requests were decided without a store that works: see
// [ErrBlocked]. It calls the store's method Blocked() int64, as [Unavailable] does
// its own.
func Blocked(store Store) int64 {
	if s, ok := store.(interface{ Blocked() int64 }); ok {
		return s.Blocked()
	}
	return 0
}
